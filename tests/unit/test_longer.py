"""Scenarios whose state first changes after their last step are run once more."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from verdict_samples import make_finding, make_run

from distbench.checking.longer import go_on
from distbench.checking.plan import Planned
from distbench.cluster import ClusterSpec
from distbench.errors import BadInputError
from distbench.scenario import Scenario
from distbench.verdict import Run, Status

_ITEM = Planned(
    scenario=Scenario(target="a.b:c", workload="linear", cluster="mwms:2", steps=3),
    spec=ClusterSpec.parse("mwms:2"),
    optional=False,
)
_LATE = {"w/slow": 4, "b/slow": 6}


class Again:
    """Notes with how many steps a scenario is run once more, and ends it somehow."""

    def __init__(self, *runs: Run) -> None:
        self.steps: list[int] = []
        self._runs = runs

    def __call__(self, item: Planned) -> Sequence[Run]:
        self.steps.append(item.scenario.steps)
        return self._runs


@pytest.mark.parametrize("status", [Status.PASS, Status.VACUOUS, Status.UNDECIDABLE])
def test_the_longer_run_counts_where_nothing_was_found(status: Status) -> None:
    again = Again(make_run(Status.FAIL, findings=(make_finding(),), seconds=2.0))
    (run,) = go_on(_ITEM, [make_run(status, seconds=1.0)], _LATE, again)
    assert again.steps == [7]
    assert run.status is Status.FAIL
    assert run.seconds == 3.0
    assert run.message == (
        "note: 'w/slow' first changes in step 4, so 7 steps were taken in place of 3"
    )


def test_what_the_longer_run_says_stays() -> None:
    again = Again(make_run(message="note: as it is"))
    (run,) = go_on(_ITEM, [make_run()], _LATE, again)
    assert run.message.startswith("note: as it is; note: 'w/slow' first changes")


@pytest.mark.parametrize(
    "status", [Status.FAIL, Status.ERROR, Status.REFUSED, Status.SKIPPED]
)
def test_what_was_found_or_ended_needs_no_more_steps(status: Status) -> None:
    again = Again()
    runs = (make_run(), make_run(status))
    assert go_on(_ITEM, runs, _LATE, again) == runs
    assert not again.steps


def test_nothing_is_run_again_where_all_state_changes() -> None:
    again = Again()
    assert go_on(_ITEM, [make_run()], {}, again) == (make_run(),)
    assert not again.steps


@pytest.mark.parametrize("status", [Status.ERROR, Status.SKIPPED, Status.REFUSED])
def test_a_longer_run_that_compares_nothing_takes_nothing_away(status: Status) -> None:
    again = Again(make_run(status, message="it took too long"))
    (run,) = go_on(_ITEM, [make_run()], _LATE, again)
    assert run.status is Status.PASS
    assert run.message == f"a run of 7 steps did not end ({status}: it took too long)"


def test_nor_does_one_that_the_subject_cannot_take() -> None:
    def refuse(_: Planned) -> Sequence[Run]:
        raise BadInputError("data(5) returned nothing")

    (run,) = go_on(_ITEM, [make_run()], _LATE, refuse)
    assert run.status is Status.PASS
    assert run.message == "a run of 7 steps did not end (data(5) returned nothing)"
