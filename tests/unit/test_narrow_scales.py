"""Sums that travel in float32 under some scale, as wider numbers show them."""

from __future__ import annotations

import numpy as np
import pytest

from distbench.diagnose.hypotheses import narrow_scales
from distbench.diagnose.hypotheses.narrow_sums import Sum, is_narrow
from distbench.trace.numbers import round_to

WIDE = 2.0**-53


def add_up(size: int, scale: float, own: float, dtype: str = "float32") -> Sum:
    """A sum that is known but for some roundings, with its addends."""
    rng = np.random.default_rng(size)
    terms = [rng.normal(size=size) for _ in range(2)]
    total = round_to(sum(round_to(scale * term, dtype) for term in terms), dtype)
    unsure = 0.0 if own == WIDE else own * rng.uniform(-1, 1, size)
    return total / scale * (1 + unsure), terms


@pytest.mark.parametrize("own", [WIDE, 2 * WIDE, 2.0**-45, 2.0**-38])
@pytest.mark.parametrize("scale", [1.0, 10.0, 1 / 3, 300.7])
def test_a_sum_of_float32_is_told_whatever_it_was_multiplied_by(
    own: float, scale: float
) -> None:
    assert is_narrow(add_up(15, scale, own), "float32", own)


@pytest.mark.parametrize("own", [WIDE, 2 * WIDE, 2.0**-45, 2.0**-38])
def test_what_is_as_near_without_float32_is_not(own: float) -> None:
    _, terms = add_up(15, 1.0, own)
    rng = np.random.default_rng(1)
    off = sum(terms) * (1 + 2.0**-25 * rng.uniform(-1, 1, 15))
    assert not is_narrow((off, terms), "float32", own)


def test_few_numbers_tell_nothing_and_no_scale_is_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Any of millions makes one number narrow."""
    monkeypatch.setattr(narrow_scales, "list_scales", None)
    assert not is_narrow(add_up(1, 1.0, 2 * WIDE), "float32", 2 * WIDE)


def test_numbers_that_many_scales_would_make_narrow_are_asked_for_one() -> None:
    """Small multiples of one number are narrow under millions."""
    found = np.array([1.0, 3.0, 5.0, 12.0])
    assert list(narrow_scales.list_scales(found, "float32", 2 * WIDE)) == [2.0**11]
