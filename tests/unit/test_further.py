"""What a run has not seen is told, or seen by another run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from verdict_samples import make_finding, make_run

from distbench.checking.further import Further, go_on, list_further
from distbench.checking.kept import Kept
from distbench.checking.plan import Planned
from distbench.cluster import ClusterSpec
from distbench.errors import BadInputError
from distbench.evidence import Evidence, Traits
from distbench.late import Late
from distbench.observe import Observation
from distbench.options import CheckOptions
from distbench.scenario import Scenario
from distbench.scenario.choices import PIPELINE, PROGRAM
from distbench.trace import WHOLE, Trace, TraceKey, VariableInfo
from distbench.trace.files import read_trace
from distbench.verdict import Run, Status

_SCENARIO = Scenario(target="a.b:c", workload="linear", cluster="mwms:2", steps=3)
_ITEM = Planned(scenario=_SCENARIO, spec=ClusterSpec.parse("mwms:2"), optional=False)
_LOUDER = Further(
    unseen="note: was not loud",
    scenario=replace(_SCENARIO, loss_weight=1024.0),
    seen="note: was loud once more",
)


class Again:
    """Notes which scenarios are run once more, and ends each somehow."""

    def __init__(self, *runs: Run) -> None:
        self.seen: list[tuple[int, float]] = []
        self._runs = iter(runs)

    def __call__(self, item: Planned, kept: Kept) -> Sequence[Run]:
        self.seen.append((item.scenario.steps, item.scenario.loss_weight))
        return [next(self._runs)]


def make_evidence(name: str = "", **traits: Any) -> Evidence:
    trace = Trace(name=name, replicas=2, shards=(4, 4), variables=(), values={})
    return Evidence(
        tier="bounded", observed=trace, reference=trace, subject=Traits(**traits)
    )


def see(**traits: Any) -> Observation:
    return Observation(evidence={"bounded": make_evidence(**traits)})


def test_another_run_that_passes_leaves_the_first_one() -> None:
    again = Again(make_run(checked=9))
    (run,) = go_on(_ITEM, [make_run(checked=5)], [_LOUDER], again, Kept(None))
    assert again.seen == [(3, 1024.0)]
    assert (run.checked, run.message) == (5, "note: was loud once more")


@pytest.mark.parametrize("status", [Status.VACUOUS, Status.UNDECIDABLE])
def test_another_run_that_proves_nothing_has_seen_nothing(status: Status) -> None:
    again = Again(make_run(status, message="all is 0", checked=9))
    (run,) = go_on(_ITEM, [make_run(checked=5)], [_LOUDER], again, Kept(None))
    words = f"note: was not loud (a run of that is {status}: all is 0)"
    assert (run.status, run.checked, run.message) == (Status.PASS, 5, words)


def test_what_another_run_finds_counts() -> None:
    again = Again(make_run(Status.FAIL, findings=(make_finding(),)))
    (run,) = go_on(_ITEM, [make_run()], [_LOUDER], again, Kept(None))
    assert (run.status, run.message) == (Status.FAIL, "note: was loud once more")
    assert run.scenario == _SCENARIO.id


@pytest.mark.parametrize("first", [Status.PASS, Status.FAIL])
def test_the_first_run_that_finds_something_is_the_last(first: Status) -> None:
    again = Again(make_run(first), make_run())
    (run,) = go_on(_ITEM, [make_run()], [_LOUDER, _LOUDER], again, Kept(None))
    assert run.status is first
    assert len(again.seen) == (2 if first is Status.PASS else 1)


def test_what_is_expected_takes_the_place_of_nothing_found() -> None:
    expected = make_run(findings=(make_finding(),), message="as expected")
    warned = make_run(findings=(make_finding(warning=True),), checked=5)
    (run,) = go_on(_ITEM, [warned], [_LOUDER], Again(expected), Kept(None))
    assert run.message == "as expected; note: was loud once more"
    (run,) = go_on(_ITEM, [expected], [_LOUDER], Again(expected), Kept(None))
    assert run.seconds == expected.seconds  # the first one, as nothing new is shown


def test_a_tier_that_cannot_be_had_holds_nothing_up() -> None:
    runs = (make_run(Status.SKIPPED, tier="exact", message="need"), make_run())
    skipped, run = go_on(_ITEM, runs, [_LOUDER], Again(make_run()), Kept(None))
    assert (skipped.message, run.message) == ("need", "note: was loud once more")


@pytest.mark.parametrize("status", [Status.FAIL, Status.ERROR, Status.REFUSED])
def test_what_was_found_or_ended_is_not_run_again(status: Status) -> None:
    again = Again()
    runs = (make_run(), make_run(status))
    assert go_on(_ITEM, runs, [_LOUDER, _LOUDER], again, Kept(None)) == runs
    assert not again.seen


@pytest.mark.parametrize("status", [Status.ERROR, Status.SKIPPED, Status.REFUSED])
def test_a_run_that_compares_nothing_takes_nothing_away(status: Status) -> None:
    again = Again(make_run(status, message="it took too long"))
    (run,) = go_on(_ITEM, [make_run()], [_LOUDER], again, Kept(None))
    assert run.status is Status.PASS
    assert run.message == (
        f"note: was not loud (a run of that did not end: {status}: it took too long)"
    )


def test_nor_does_one_that_the_subject_cannot_take() -> None:
    def refuse(*_: object) -> Sequence[Run]:
        raise BadInputError("data(5) returned nothing")

    (run,) = go_on(_ITEM, [make_run()], [_LOUDER], refuse, Kept(None))
    assert run.status is Status.PASS
    assert run.message.endswith("did not end: data(5) returned nothing)")


def test_what_no_run_sees_is_told() -> None:
    told = replace(_LOUDER, scenario=None)
    (run,) = go_on(_ITEM, [make_run()], [told], Again(), Kept(None))
    assert (run.status, run.message) == (Status.PASS, "note: was not loud")


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (4, "after the last one of this run; 6 steps show that and what comes next"),
        (2, "the last one of this run; 6 steps show what comes next"),
    ],
    ids=["later", "last"],
)
def test_steps_that_were_asked_for_are_those_that_are_taken(
    step: int, words: str
) -> None:
    late = Late(first={"'w/slow'": step}, steps=6)
    (further,) = list_further(_SCENARIO, see(), late, CheckOptions(steps=3))
    assert further.scenario is None
    assert further.unseen == f"note: 'w/slow' first changes in step {step}, {words}"


def test_what_turns_too_far_away_is_told() -> None:
    late = Late(ahead={"what loop.py:9 decides": 90, "what loop.py:7 decides": 40})
    (further,) = list_further(_SCENARIO, see(), late, CheckOptions())
    assert further.scenario is None
    assert further.unseen == (
        "note: what loop.py:7 decides changes in step 40, and no step from there on "
        "was taken; 43 steps show what comes then"
    )
    longer = replace(_SCENARIO, steps=91)
    assert not list_further(longer, see(), late, CheckOptions(steps=91))


def test_losses_are_larger_where_larger_gradients_are_limited() -> None:
    (further,) = list_further(_SCENARIO, see(limits=True), Late(), CheckOptions())
    assert further.scenario == replace(_SCENARIO, loss_weight=1024.0)


def test_losses_are_smaller_where_all_gradients_are_limited() -> None:
    (further,) = list_further(_SCENARIO, see(unlimited=2.0**-5), Late(), CheckOptions())
    assert further.scenario == replace(_SCENARIO, loss_weight=2.0**-5)
    assert further.seen.endswith("so losses were 32 times smaller in another run")


def test_gradients_of_a_program_are_larger_and_its_losses_as_they_are() -> None:
    scenario = replace(_SCENARIO, workload=PROGRAM)
    (further,) = list_further(scenario, see(limits=True), Late(), CheckOptions())
    assert further.scenario == replace(scenario, loss_weight=1024.0, steps=1)
    assert further.seen.endswith("so gradients were 1024 times as large in another run")


def test_one_replica_has_no_sum_that_a_limit_hides() -> None:
    alone = replace(_SCENARIO, cluster="one")
    assert not list_further(alone, see(unlimited=2.0**-5), Late(), CheckOptions())


@pytest.mark.parametrize("traits", [{"limits": True}, {"unlimited": 2.0**-5}], ids=str)
@pytest.mark.parametrize(
    ("workload", "options"),
    [(PIPELINE, CheckOptions()), (PROGRAM, CheckOptions(loss_weight=0.5))],
)
def test_what_is_given_its_losses_keeps_them(
    workload: str, options: CheckOptions, traits: dict[str, Any]
) -> None:
    scenario = replace(_SCENARIO, workload=workload)
    (further,) = list_further(scenario, see(**traits), Late(), options)
    assert further.scenario is None


def test_gradients_have_more_elements_where_the_subject_reduces_them() -> None:
    traits = {"reduces_at": "sums.py:7"}
    (further,) = list_further(_SCENARIO, see(**traits), Late(), CheckOptions())
    assert further.scenario == replace(_SCENARIO, workload="large")
    exact = CheckOptions(tiers=("exact",))
    (further,) = list_further(_SCENARIO, see(**traits), Late(), exact)
    assert further.scenario is None
    assert further.unseen == (
        "note: sums.py:7 reduces gradients, and here none of many elements, nor two of "
        "one shape; workloads='large' has them"
    )


@pytest.mark.parametrize(
    ("change", "options"),
    [
        ({}, CheckOptions(workloads=("linear",))),
        ({"workload": "embedding"}, CheckOptions()),
        ({"workload": PROGRAM}, CheckOptions()),
        ({"cluster": "one"}, CheckOptions()),
    ],
)
def test_who_asks_for_a_workload_gets_no_other(
    change: dict[str, Any], options: CheckOptions
) -> None:
    scenario = replace(_SCENARIO, **change)
    seen = see(reduces_at="sums.py:7")
    assert not list_further(scenario, seen, Late(), options)


def test_nothing_is_unseen_of_most_subjects() -> None:
    assert not list_further(_SCENARIO, see(), Late(), CheckOptions())
    assert not list_further(_SCENARIO, Observation(), Late(), CheckOptions())


def test_the_last_replica_overflows_where_that_step_is_left_out() -> None:
    (further,) = list_further(_SCENARIO, see(guards=True), Late(), CheckOptions())
    assert further.scenario == replace(_SCENARIO, faults=("nan:replica:1@1",))


def see_overflow(*odd: tuple[int, int]) -> Observation:
    """A guarded run in which gradients of some steps and replicas are not finite.

    Args:
        odd: Which ones, as of one device's shards; of `WHOLE` its global batch's.
    """

    def make(replicas: Sequence[int]) -> Trace:
        values: dict[TraceKey, Any] = {}
        for step, replica in product(range(3), replicas):
            key = TraceKey(step=step, phase="local_gradient", variable="w")
            number = np.inf if (step, replica) in odd else 1.0
            values[key.at(replica)] = np.array([number])
            state = replace(key, phase="variable").at(replica)
            values[state] = np.array([float(step)])
        info = VariableInfo(path="w", role="variable", shape=(1,), dtype="float64")
        return Trace(
            name="", replicas=2, shards=(4, 4), variables=(info,), values=values
        )

    evidence = replace(
        make_evidence(guards=True),
        observed=make((0, 1)),
        reference=make((WHOLE, 0, 1)),
    )
    return Observation(evidence={"bounded": evidence})


@pytest.mark.parametrize(
    ("seen", "fault"),
    [
        (see_overflow((1, WHOLE), (1, 1)), None),
        (see_overflow((1, WHOLE), (1, 0), (1, 1)), "nan:replica:1@0"),
        (see_overflow((1, WHOLE), (1, 0)), "nan:replica:1@0"),
        (see_overflow((1, WHOLE)), "nan:replica:1@0"),
        (see_overflow((1, 1)), "nan:replica:1@0"),  # one device takes that step
        (see_overflow((0, 0), (1, 0)), "nan:replica:1@2"),
        (see_overflow((2, 0)), "nan:replica:1@1"),
    ],
)
def test_a_guard_is_seen_where_the_last_replica_overflows_alone(
    seen: Observation, fault: str | None
) -> None:
    """In a step in which nothing else does, on one device as well."""
    found = [f.scenario for f in list_further(_SCENARIO, seen, Late(), CheckOptions())]
    asked = [scenario.faults for scenario in found if scenario is not None]
    assert asked == ([(fault,)] if fault else [])


@pytest.mark.parametrize(
    ("scenario", "options"),
    [
        (replace(_SCENARIO, cluster="one"), CheckOptions()),
        (replace(_SCENARIO, steps=1), CheckOptions(steps=1)),
        (_SCENARIO, CheckOptions(faults=("nan:replica:0@0",))),
    ],
    ids=["one-replica", "one-step", "another-fault"],
)
def test_nothing_overflows_where_it_cannot_or_does(
    scenario: Scenario, options: CheckOptions
) -> None:
    assert not list_further(scenario, see(guards=True), Late(), options)


@pytest.mark.parametrize(
    ("status", "stands"),
    [
        (Status.PASS, "first"),
        (Status.FAIL, "again"),
        (Status.ERROR, "first"),
    ],
)
def test_the_traces_of_the_runs_that_stand_are_kept(
    status: Status, stands: str, tmp_path: Path
) -> None:
    """Of another run too if it has another id, as one with a fault."""

    def run_again(item: Planned, kept: Kept) -> Sequence[Run]:
        kept.write(make_evidence("again"))
        return [make_run(status, message="ended")]

    kept = Kept.find(tmp_path, _SCENARIO.id)
    kept.write(make_evidence("first"))
    go_on(_ITEM, [make_run()], [_LOUDER], run_again, kept)
    places = [path.parent for path in tmp_path.rglob("trace.json")]
    place = tmp_path / _SCENARIO.id / "bounded"
    assert sorted(places) == [place / "observed", place / "reference"]
    assert {read_trace(path, "trace").name for path in places} == {stands}
