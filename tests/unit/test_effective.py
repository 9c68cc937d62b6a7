"""What passed proves something only where an error would have been seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from gradient_values import map_values
from training_simulator import KERNEL, observe

from distbench.compare.arrays.measure import BITWISE, Margin
from distbench.compare.arrays.pair import Pair, Relation
from distbench.compare.comparison import Comparison, compare_evidence, judge_pair
from distbench.compare.vacuity import find_weak_phases
from distbench.diagnose.judge import judge
from distbench.trace import INITIAL, Trace, TraceKey
from distbench.verdict import Status


def make_pair(
    observed: float,
    *,
    step: int = 0,
    relation: Relation = "reference",
    bound: float = 0.0,
    terms: tuple[float, ...] = (),
) -> Pair:
    """A variable that is as it should be, whose step adds up these terms."""
    return Pair(
        key=TraceKey(step=step, phase="variable", variable=KERNEL, replica=0),
        relation=relation,
        against="one device",
        observed=np.array(observed),
        expected=np.array(observed),
        margin=Margin(bound=bound) if bound else BITWISE,
        dtype="float64",
        terms=tuple(np.array(term) for term in terms),
    )


@pytest.mark.parametrize(
    ("terms", "seen"),
    [((0.5, 0.5), True), ((0.99, 0.01), False), ((0.01, 0.99), False)],
    ids=["alike", "last-hidden", "first-hidden"],
)
def test_the_loss_of_the_smallest_addend_must_be_seen(
    terms: tuple[float, ...], seen: bool
) -> None:
    """An example's part is larger here than what the bound allows."""
    evidence = observe()
    assert 1 / sum(evidence.reference.get_shards(0)) > 0.02
    comparison = judge_pair(make_pair(1.0, bound=0.02, terms=terms), evidence)
    assert comparison.comparison.effective is seen
    assert comparison.comparison.hidden is not seen


def test_a_replica_that_adds_nothing_can_be_lost_without_harm() -> None:
    pair = make_pair(1.0, bound=0.02, terms=(0.0, 1.0))
    assert judge_pair(pair, observe()).comparison.effective


@pytest.mark.parametrize(
    ("step", "relation", "effective"),
    [
        (0, "reference", False),
        (0, "follows", True),
        (1, "reference", True),
        (1, "replicas", False),
        (INITIAL, "reference", False),
    ],
)
def test_what_a_step_that_is_left_out_makes_of_state_proves_nothing(
    step: int, relation: Relation, effective: bool
) -> None:
    evidence = change_evidence(observe(), settled=frozenset({(0, KERNEL)}))
    pair = make_pair(1.0, step=step, relation=relation)
    assert judge_pair(pair, evidence).comparison.effective is effective


@pytest.mark.parametrize(
    ("observed", "effective"),
    [(np.inf, False), (np.nan, False), ([np.inf, 1.0], True), ([np.nan, 0.0], False)],
)
def test_what_is_infinite_stays_so_whatever_is_lost(observed, effective) -> None:
    """Inf less an N-th of it was NaN, which is another number."""
    comparison = judge_pair(make_pair(observed), observe()).comparison
    assert comparison.effective is effective
    assert not comparison.hidden


def test_a_run_of_infinities_alone_is_vacuous() -> None:
    """That of a sum which was twice what it had to be passed."""

    def spoil(trace: Trace) -> Trace:
        values = {
            key: value
            if key.step == INITIAL or key.phase == "iterations"
            else map_values(value, lambda array: np.full_like(array, np.inf))
            for key, value in trace.values.items()
        }
        return replace(trace, values=values)

    assert judge(observe().change_traces(spoil)).status is Status.VACUOUS


Place = tuple[str, str]


def find_weak(
    *places: Place, weak: Place | None = None, hidden: bool = False
) -> tuple[tuple[str, str], ...]:
    """Weak phases where only these comparisons tell of gradients, one no proof.

    Of the state only what follows from the sum is left: against one device it would
    prove that as well.
    """
    evidence = observe()
    found: list[Comparison] = []
    for item in compare_evidence(evidence):
        c = item.comparison
        place = (c.phase, c.relation)
        if place == weak:
            c = replace(c, effective=False, hidden=hidden)
        if place in (*places, ("loss", "reference"), ("variable", "follows")):
            found.append(c)
    return find_weak_phases(evidence, found)


LOCAL = ("local_gradient", "reference")
SUMMED = ("reduced_gradient", "follows")


@pytest.mark.parametrize("weak", [LOCAL, SUMMED], ids=["local", "summed"])
@pytest.mark.parametrize("hidden", [True, False])
def test_right_local_gradients_and_their_right_sum_are_proof_only_together(
    weak: Place, hidden: bool
) -> None:
    assert find_weak(LOCAL, SUMMED) == ()
    left = find_weak(LOCAL, SUMMED, weak=weak, hidden=hidden)
    assert left == (("gradient", "hidden" if hidden else "empty"),)


@pytest.mark.parametrize("place", [LOCAL, SUMMED], ids=["local", "summed"])
def test_one_half_of_a_proof_alone_is_none(place: Place) -> None:
    assert find_weak(place) == (("gradient", "lacking"),)
