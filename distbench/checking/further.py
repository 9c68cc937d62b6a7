"""What a run that found nothing has not seen, and runs once more that see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from distbench.checking.kept import Kept
from distbench.checking.plan import DEFAULT_WORKLOADS, Planned, list_possible
from distbench.checking.runs import OPEN, add_notes, add_time, measure_time
from distbench.diagnose.readings.overflowing import list_parted
from distbench.errors import BadInputError
from distbench.evidence import Evidence, Traits
from distbench.fault import Fault
from distbench.late import Late
from distbench.observe import Observation
from distbench.options import CheckOptions, list_tiers
from distbench.scenario import Scenario
from distbench.scenario.choices import LARGE, LARGER, PIPELINE, WORKLOADS
from distbench.spelling import spell_given
from distbench.verdict import Run, Status

_BEYOND = 3
"""Steps that show what a change leads to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Further:
    """Something that a run has not seen.

    Attributes:
        unseen: What it is, if nothing else sees it.
        scenario: What sees it; None where nothing is to be run again.
        seen: What became of it, where that was run.
    """

    unseen: str
    scenario: Scenario | None = None
    seen: str = ""

    def tell_unended(self, why: str) -> str:
        """That a run which would see it came to nothing."""
        return f"{self.unseen} (a run of that did not end: {why})"


def list_further(
    scenario: Scenario, seen: Observation, late: Late, options: CheckOptions
) -> Sequence[Further]:
    """What an observed scenario has not seen of its subject.

    Args:
        scenario: What is planned: it may have been run with more steps.
        seen: What was seen of it.
        late: What happens in later steps than were run.
        options: What was asked for.
    """
    evidence = next(iter(seen.evidence.values()), None)  # alike in all tiers
    if evidence is None:
        return []
    found = [
        find_late(scenario, late) if late.first else None,
        _find_ahead(scenario, late),
        _find_larger(scenario, evidence.subject, options),
        _find_smaller(scenario, evidence.subject, options),
        _find_overflow(scenario, evidence, options),
        _find_wider(scenario, evidence.subject, options),
    ]
    return [further for further in found if further is not None]


def find_late(scenario: Scenario, late: Late) -> Further:
    """Steps, where state or a decision first changes in the last one or later.

    What is done first may be right where what is done next is not, so there are as many
    as show that as well.
    """
    is_seen = min(late.first.values()) < scenario.steps
    lacks = "the last one of this run" if is_seen else "after the last one of this run"
    shows = "what comes next" if is_seen else "that and what comes next"
    return Further(
        unseen=f"note: {late}, {lacks}; {late.steps} steps show {shows}",
        seen=f"note: {late}, so {late.steps} steps were taken in place of "
        f"{scenario.steps}",
    )


def _find_ahead(scenario: Scenario, late: Late) -> Further | None:
    """Steps that are too far away to take them unasked."""
    ahead = {n: step for n, step in late.ahead.items() if step >= scenario.steps}
    if not ahead:
        return None
    first = min(ahead, key=lambda name: ahead[name])
    return Further(
        unseen=f"note: {first} changes in step {ahead[first]}, and no step from there "
        f"on was taken; {ahead[first] + _BEYOND} steps show what comes then"
    )


def _find_larger(
    scenario: Scenario, traits: Traits, options: CheckOptions
) -> Further | None:
    """Gradients, where larger ones are changed before they are summed."""
    if not traits.limits:
        return None
    what = (
        "note: one device changes larger gradients between its tape and its update, as "
        "a clip does"
    )
    return Further(
        unseen=f"{what}; none was so large here, so when replicas do that is not known",
        scenario=_weigh(scenario, options, LARGER),
        seen=f"{what}, so {_name(scenario)} were {LARGER:g} times as large in another "
        "run",
    )


def _find_smaller(
    scenario: Scenario, traits: Traits, options: CheckOptions
) -> Further | None:
    """Gradients, where all were limited to what says nothing of their size."""
    if not traits.unlimited or scenario.spec.replicas < 2:
        return None
    what = (
        "note: one device makes the same of gradients that are N times as large, in "
        "every step, as a clip that limits them all does"
    )
    times = f"{1 / traits.unlimited:g} times smaller"
    return Further(
        unseen=f"{what}, so a sum that is divided or multiplied before that is not "
        f"seen here; gradients that are {times} would show it",
        scenario=_weigh(scenario, options, traits.unlimited),
        seen=f"{what}, so {_name(scenario)} were {times} in another run",
    )


def _weigh(scenario: Scenario, options: CheckOptions, weight: float) -> Scenario | None:
    """A scenario with gradients of another size; None where that is given."""
    if options.loss_weight != 1 or scenario.workload == PIPELINE:
        return None
    if scenario.workload in WORKLOADS:
        return replace(scenario, loss_weight=weight)
    if scenario.spec.replicas < 2:
        return None
    # Its rates were chosen for its own gradients: one step shows a clip, and with
    # larger ones what comes next may not be finite.
    steps = 1 if weight > 1 else scenario.steps
    return replace(scenario, loss_weight=weight, steps=steps)


def _name(scenario: Scenario) -> str:
    """What is multiplied: a subject that computes its own loss keeps that."""
    return "losses" if scenario.workload in WORKLOADS else "gradients"


def _find_overflow(
    scenario: Scenario, evidence: Evidence, options: CheckOptions
) -> Further | None:
    """Gradients that are not finite, where one device leaves out their step."""
    replicas = scenario.spec.replicas
    is_asked = evidence.subject.guards and not options.faults
    if not is_asked or scenario.steps < 2 or replicas < 2 or _sees_last(evidence):
        return None
    # In a step of which nothing else overflows, and one that goes on from another; but
    # before what overflows: one device may take a step there that hides all later ones.
    steps = [1, 0, *range(2, scenario.steps)]
    step = next((step for step in steps if _is_finite(evidence, step)), None)
    if step is None:
        return None
    # Whoever asks the first replica alone is told nothing of the last one.
    fault = str(Fault.corrupt(replicas - 1, step))
    what = "note: one device leaves out a step whose gradients are not finite"
    given = spell_given("faults", str(fault))
    return Further(
        unseen=f"{what}; those of the last replica alone never were, and {given} "
        "shows such a step",
        scenario=replace(scenario, faults=(fault,)),
        seen=f"{what}, so those of the last replica were NaN in step {step} of another "
        "run",
    )


def _find_wider(
    scenario: Scenario, traits: Traits, options: CheckOptions
) -> Further | None:
    """Gradients of more elements, where the subject reduces them in its own way.

    That may be another one for large gradients: in parts, in buckets, compressed. Those
    of two variables of one shape it may take for each other.
    """
    is_asked = bool(options.workloads) or scenario.workload != DEFAULT_WORKLOADS[0]
    if not traits.reduces_at or is_asked or scenario.spec.replicas < 2:
        return None
    what = f"note: {traits.reduces_at} reduces gradients"
    wider = replace(scenario, workload=LARGE)
    is_possible = list_possible(list_tiers(options), wider) != ("exact",)
    return Further(
        unseen=f"{what}, and here none of many elements, nor two of one shape; "
        f"{spell_given('workloads', LARGE)} has them",
        scenario=wider if is_possible else None,
        seen=f"{what}, so one of many elements and two of one shape were among those "
        "of another run",
    )


def _sees_last(evidence: Evidence) -> bool:
    """Whether gradients of the last replica overflow, not those of all, and it counts.

    A step in which one device takes another way shows nothing of who is asked.
    """
    last = evidence.observed.replicas - 1
    return any(
        last in evidence.observed.find_overflowing(step)
        for step in set(range(evidence.observed.steps)) - list_parted(evidence)
    )


def _is_finite(evidence: Evidence, step: int) -> bool:
    """Whether all gradients of a step are, of each shard alone as well."""
    traces = evidence.observed, evidence.reference
    return all(all(trace.find_finite(step).values()) for trace in traces)


def go_on(
    item: Planned,
    runs: Iterable[Run],
    further: Sequence[Further],
    run_again: Callable[[Planned, Kept], Sequence[Run]],
    kept: Kept,
) -> Sequence[Run]:
    """Runs of a scenario, made once more for what they have not seen.

    Args:
        item: The scenario.
        runs: Those that it ended with.
        further: What they have not seen.
        run_again: Has a scenario run by itself, and returns its runs.
        kept: Has their traces, and gets those of whichever stand in the end.

    Returns:
        The first runs that fail; else the first ones that show something expected. What
        ends without comparing anything takes nothing away from the others.
    """
    found = tuple(runs)
    for one in further:
        ends = {run.status for run in found} - {Status.SKIPPED}
        if not ends or not ends <= {*OPEN}:
            break
        found = _see(item, found, one, run_again, kept)
    return found


def _see(
    item: Planned,
    found: tuple[Run, ...],
    one: Further,
    run_again: Callable[[Planned, Kept], Sequence[Run]],
    kept: Kept,
) -> tuple[Run, ...]:
    if one.scenario is None:
        return add_notes(found, one.unseen)
    with kept.beside() as beside:
        try:
            again = run_again(replace(item, scenario=one.scenario), beside)
        except BadInputError as error:
            return add_notes(found, one.tell_unended(str(error)))
        if why := tell_uncompared(again):
            return add_notes(found, one.tell_unended(why))
        compared = {run.status for run in again} & {*OPEN, Status.FAIL}
        if not compared & {Status.PASS, Status.FAIL}:
            why = _tell(run for run in again if run.status in compared)
            return add_notes(found, f"{one.unseen} (a run of that is {why})")
        finds_more = _finds(again) and not _finds(found)
        if finds_more or Status.FAIL in compared:
            kept.take(beside)
            # A fault would give it another id, which nobody has planned.
            name = item.scenario.id
            before_s = measure_time(found)
            found = tuple(
                replace(run, scenario=name) for run in add_time(again, before_s)
            )
    return add_notes(found, one.seen)


def tell_uncompared(runs: Sequence[Run]) -> str:
    """Why nothing was compared in some runs; empty if something was."""
    compared = any(run.status in (*OPEN, Status.FAIL) for run in runs)
    return "" if compared else _tell(runs)


def _tell(runs: Iterable[Run]) -> str:
    """How the first of some runs ended."""
    return next((f"{run.status}: {run.message}" for run in runs), "")


def _finds(runs: Iterable[Run]) -> bool:
    """Whether anything is wrong, if only what is expected."""
    return any(not finding.warning for run in runs for finding in run.findings)
