"""Equal NaN is no difference: it tells neither replicas nor shards apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulated_rule import Rule
from training_simulator import HEAD, observe

from distbench.compare.arrays.measure import Margin
from distbench.compare.arrays.pair import Pair
from distbench.compare.state.leading import is_led
from distbench.diagnose.clues.context import Context
from distbench.diagnose.hypotheses.slots import explain_by_own_way
from distbench.evidence import Evidence
from distbench.trace import Phase, TraceKey

SLOT = f"momentum/{HEAD}"
SOME = np.array([np.nan, 1.0])


def make_case(phase: Phase, variable: str, replica: int, observed: np.ndarray) -> Pair:
    return Pair(
        key=TraceKey(step=0, phase=phase, variable=variable, replica=replica),
        relation="reference",
        against="one device",
        observed=observed,
        expected=np.array([0.5, 2.0]),
        margin=Margin(),
        dtype="float32",
    )


@pytest.mark.parametrize(
    ("other", "apart"), [(SOME, False), (SOME + 1, True)], ids=["equal", "other"]
)
def test_copies_of_a_slot_with_nan_are_equal(other: np.ndarray, apart: bool) -> None:
    evidence = observe(rule=Rule(name="momentum"), replicas=2, steps=1)
    cases = tuple(make_case("slot", SLOT, r, v) for r, v in enumerate((SOME, other)))
    context = Context(evidence=evidence, phase="slot", cases=cases)
    assert bool(list(explain_by_own_way(context))) == apart


@pytest.mark.parametrize(("more", "led"), [(0.0, False), (1.0, True)])
def test_state_with_nan_is_led_by_examples_only_where_a_shard_has_other_numbers(
    more: float, led: bool
) -> None:
    keys = [TraceKey(step=0, phase="variable", variable="v", replica=r) for r in (0, 1)]
    values = {keys[0].at(-1): SOME, keys[0]: SOME, keys[1]: SOME + more}
    reference = replace(observe(replicas=2, steps=1).reference, values=values)
    evidence = Evidence(tier="bounded", reference=reference, observed=reference)
    assert is_led(evidence, make_case("variable", "v", 0, SOME)) == led
