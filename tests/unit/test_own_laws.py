"""Rules by which examples follow from others, and what is drawn, which has none."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from distbench.diagnose.remarks.own_laws import find_factor, find_law

RNG = np.random.default_rng(3)
X = RNG.normal(size=(18, 4)).astype("float32")
WORDS = RNG.integers(0, 5, size=(18, 1))
ORDER = np.array([3, 0, 4, 1, 2])
NUMBERS = np.arange(18)[:, None]
TEXT = np.array([b"a", b"b", b"c", b"d", b"e"])
ROWS = np.eye(5)[WORDS[:, 0]]
CLASSES = WORDS % 2


@pytest.mark.parametrize(
    ("due", "seen", "law"),
    [
        (X, X, "same"),
        (X, X * np.float32(1 + 2e-7), "same"),
        (X, 2 * X, "linear"),
        (X, (X - X.mean(0)) / X.std(0), "linear"),
        (X, X + X.mean(1, keepdims=True), "none"),
        (X, X + RNG.normal(size=X.shape).astype("float32"), "none"),
        (X, X[:, ::-1], "none"),
        (X[:3], 2 * X[:3], "none"),  # two unknowns fit too well
        (WORDS, ORDER[WORDS], "renamed"),
        (TEXT[WORDS], TEXT[ORDER[WORDS]], "renamed"),
        (ROWS, ROWS[:, ORDER], "renamed"),
        (WORDS, RNG.integers(0, 5, size=WORDS.shape), "none"),
        (NUMBERS, NUMBERS // 2, "none"),  # each comes once
        (NUMBERS[::2] / 1, NUMBERS[:9] / 1, "none"),
        (np.zeros((18, 1)), np.ones((18, 1)), "constant"),
        (TEXT[WORDS], TEXT[WORDS], "same"),
    ],
    ids=[
        "same",
        "rounding",
        "factor",
        "standardised",
        "by-row",
        "noise",
        "turned",
        "too-few",
        "renamed",
        "text",
        "one-hot",
        "drawn-words",
        "numbers-in-shard",
        "numbers-as-floats",
        "constant",
        "same-text",
    ],
)
def test_a_rule_is_told_from_what_is_drawn(due, seen, law) -> None:
    assert find_law(due, seen) == law


def test_what_classes_of_one_weight_become_is_led_by_the_class() -> None:
    own = np.array([1.0, 2.0, 3.0, 4.0, 5.0])[WORDS]
    assert find_law(CLASSES, own) == "none"
    assert find_law(CLASSES, own, (WORDS,)) == "renamed"
    assert find_law(CLASSES, RNG.integers(0, 3, size=(18, 1)), (WORDS,)) == "none"


@pytest.mark.parametrize(
    ("seen", "factor"), [(2 * X, 2.0), (2 * X + 1, None), (X[:, ::-1], None)]
)
def test_a_factor_is_all_that_there_is(seen, factor) -> None:
    found = find_factor(X, seen)
    assert found == pytest.approx(factor) if factor else found is None


def test_what_is_missing_in_both_is_the_same() -> None:
    holed = X.copy()
    holed[2, 1], holed[5, 0] = np.nan, np.inf
    assert find_law(holed, holed * np.float32(1 + 2e-7)) == "same"
    assert find_law(X, holed) == "none"


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_numbers_are_made_of_wider_ones(dtype) -> None:
    """Noise that is small beside a number, and not beside its rounding, is drawn."""
    held = X.astype(dtype)
    unit = 2 * float(ml_dtypes.finfo(dtype).eps)
    assert find_law(held, held) == "same"
    assert find_law(held, ((X - X.mean(0)) / X.std(0)).astype(dtype)) == "linear"
    noisy = X + 8 * unit * np.abs(X).max() * RNG.uniform(-1, 1, size=X.shape)
    assert find_law(held, noisy.astype(dtype)) == "none"
    assert find_factor(held, (1.5 * X).astype(dtype)) == pytest.approx(1.5, rel=unit)
