"""Scenarios that are run once more with more steps, where state first changes later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from distbench.checking.plan import Planned
from distbench.checking.runs import add_note
from distbench.errors import BadInputError
from distbench.observe import Observation
from distbench.verdict import Run, Status

_OPEN = (Status.PASS, Status.VACUOUS, Status.UNDECIDABLE)
"""What a scenario ended with that has found nothing."""
_ENDED = (Status.ERROR, Status.SKIPPED, Status.REFUSED)
"""What a longer one ended with that has compared nothing."""


def list_late(seen: Observation) -> Mapping[str, int]:
    """Steps after those of a scenario in which state first changes, by its path."""
    found = [evidence.subject.late for evidence in seen.evidence.values()]
    return found[0] if found else {}


def go_on(
    item: Planned,
    runs: Iterable[Run],
    late: Mapping[str, int],
    run_again: Callable[[Planned], Sequence[Run]],
) -> Sequence[Run]:
    """Runs of a scenario with as many steps as all of its state needs to change.

    Args:
        item: The scenario.
        runs: Those that it ended with.
        late: See `list_late`.
        run_again: Has a scenario run by itself, and returns its runs.

    Returns:
        The same ones where they have found something, or the longer scenario did not
        get so far.
    """
    found = tuple(runs)
    if not late or any(run.status not in _OPEN for run in found):
        return found
    steps = max(late.values()) + 1
    longer = replace(item, scenario=replace(item.scenario, steps=steps))
    try:
        again = run_again(longer)
    except BadInputError as error:
        return _tell_end(found, steps, str(error))
    for run in again:
        if run.status in _ENDED:
            return _tell_end(found, steps, f"{run.status}: {run.message}")
    first = min(late, key=lambda path: late[path])
    note = (
        f"note: '{first}' first changes in step {late[first]}, so {steps} steps were "
        f"taken in place of {item.scenario.steps}"
    )
    before_s = sum(run.seconds for run in found) / len(again)
    return tuple(
        replace(add_note(run, note), seconds=run.seconds + before_s) for run in again
    )


def _tell_end(runs: Sequence[Run], steps: int, why: str) -> Sequence[Run]:
    note = f"a run of {steps} steps did not end ({why})"
    return tuple(add_note(run, note) for run in runs)
