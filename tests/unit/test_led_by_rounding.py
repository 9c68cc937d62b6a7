"""State that a gradient's rounding leads has the size of what that is a rounding of."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from distbench.compare.arrays.noise import Whole
from distbench.compare.state.led_by_rounding import find_led_by_rounding
from distbench.evidence import Evidence
from distbench.fed import Fed
from distbench.trace import INITIAL, WHOLE, Phase, Trace, TraceKey, Value

RATE = 0.125
LEFT = 2.0**-27
TERMS = 0.5
"""What LEFT is a rounding of."""
U = 2.0**-24


def _make(
    phase: Phase, numbers: Mapping[int, float], replica: int
) -> dict[TraceKey, Value]:
    return {
        TraceKey(step=step, phase=phase, variable="bias", replica=replica): np.float32(
            [number]
        )
        for step, number in numbers.items()
    }


def _find(
    state: Mapping[int, float],
    due: tuple[float, float] | None = None,
    *,
    reduced: bool = False,
) -> dict[int, float]:
    """Sizes of the state by step, as far as another one is found than its own.

    Args:
        state: What one device has, by step.
        due: The replicas' sum in the first step, and what one device makes of it.
        reduced: Whether sums of the gradient were seen.
    """
    values = {
        **_make("variable", state, WHOLE),
        **_make("local_gradient", {0: LEFT}, WHOLE),
    }
    reference = Trace(name="", replicas=2, shards=(2, 1), variables=(), values=values)
    seen = _make("reduced_gradient", {0: LEFT} if reduced else {}, 0)
    fed = None
    if due is not None:
        both = {
            **_make("local_gradient", {0: due[0]}, 0),
            **_make("variable", {0: due[1]}, 0),
        }
        fed = Trace(name="", replicas=2, shards=(2, 1), variables=(), values=both)
    evidence = Evidence(
        tier="bounded",
        observed=Trace(name="", replicas=2, shards=(2, 1), variables=(), values=seen),
        reference=reference,
        fed=Fed(due=fed),
    )
    wholes = {
        key: Whole(size=abs(float(value[0])), norm=1.0)  # type: ignore[index]
        for key, value in values.items()
        if key.step != INITIAL
    }
    cancelled = {
        key: Whole(size=TERMS, norm=1.0)
        for key in wholes
        if key.phase == "local_gradient"
    }
    found = find_led_by_rounding(evidence, wholes, cancelled)
    return {key.step: whole.size for key, whole in found.items()}


def test_state_that_a_step_hardly_moves_has_the_size_of_its_largest_change() -> None:
    assert _find({INITIAL: 0, 0: LEFT, 1: 0.25}) == {0: 0.25 - LEFT}
    # Of what is large already rounding is a part of it.
    assert not _find({INITIAL: 1, 0: 1 + 2 * U, 1: 1.25})
    assert not _find({INITIAL: 0, 0: 0.125, 1: 0.25})
    # A number that stands for nothing known is gone after the first step.
    assert not _find({INITIAL: 1e9, 0: 10, 1: 9.5})
    assert not _find({INITIAL: 1e6, 0: 0.125, 1: 0.0625})


def test_an_optimizer_tells_what_follows() -> None:
    assert not _find({INITIAL: 0, 0: LEFT, 1: 0.25}, reduced=True)


@pytest.mark.parametrize("power", [1, 2])
def test_what_a_sum_moves_beside_its_own_rounding_is_moved_by_any_rule(
    power: int,
) -> None:
    """Where the replicas' sum is off by a quarter of a rounding of the terms."""
    gap = np.float32(LEFT + U * TERMS / 4) - np.float32(LEFT)
    moved = RATE * gap**power
    (size,) = _find({INITIAL: 0, 0: 0}, (LEFT + float(gap), moved)).values()
    assert size == pytest.approx(4 * moved / U, rel=1e-6)


@pytest.mark.parametrize("total", [LEFT, 2 * LEFT + 16 * U * TERMS])
def test_a_sum_that_is_the_same_or_another_one_tells_nothing(total: float) -> None:
    assert not _find({INITIAL: 0, 0: 0}, (total, 0.25))
