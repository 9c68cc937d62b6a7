"""Moving statistics of which what the examples add travels in a narrow dtype."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from led_runs import ADDED, Total, make_run

from distbench.diagnose.judge import judge
from distbench.trace.numbers import round_to
from distbench.verdict import Status


def add_narrow(dtype: str, factor: float = 1.0) -> Total:
    """Every addend is rounded, and every partial sum."""

    def add(parts: list[Any]) -> Any:
        total = np.zeros_like(parts[0])
        for part in parts:
            total = round_to(total + round_to(part, dtype), dtype)
        return np.float32(total * factor)

    return add


@pytest.mark.parametrize("known", [True, False], ids=["known", "grouped"])
def test_what_is_added_in_a_narrow_dtype_is_a_warning(known: bool) -> None:
    """Beside an old value that is four times as large, and is not rounded."""
    run = make_run(ADDED, known=known, counts=True, total=add_narrow("bfloat16"))
    judgement = judge(run)
    (found,) = judgement.findings
    assert (found.code, found.phase) == ("lower-precision", "variable")
    assert judgement.status is Status.PASS
    assert "rounded to bfloat16 on the way" in found.explanation


@pytest.mark.parametrize("off", [0.0, 0.05], ids=["right", "wrong"])
def test_a_statistic_that_is_rounded_as_a_whole_is_a_warning(off: float) -> None:
    run = make_run(ADDED, known=True, counts=True)
    values = {
        key: round_to(np.asarray(value) + off, "bfloat16")
        if key.variable == "moving"
        else value
        for key, value in run.observed.values.items()
    }
    judgement = judge(replace(run, observed=replace(run.observed, values=values)))
    assert judgement.status is (Status.FAIL if off else Status.PASS)
    assert ("lower-precision" in {f.code for f in judgement.findings}) is not bool(off)


@pytest.mark.parametrize(
    "total",
    [lambda parts: sum(parts) * np.float32(1.0005), add_narrow("bfloat16", 1.02)],
    ids=["as-little-wrong", "narrow-and-wrong"],
)
def test_what_is_as_little_wrong_without_narrow_numbers_fails(total: Total) -> None:
    judgement = judge(make_run(ADDED, known=True, counts=True, total=total))
    assert judgement.status is Status.FAIL


def test_what_nothing_foretells_is_not_told_to_be_explained() -> None:
    """All replicas hold the same, and what that is nobody knows."""
    run = make_run(
        ADDED, known=True, counts=True, total=lambda parts: np.tanh(sum(parts))
    )
    (found,) = judge(run).findings
    assert (found.code, found.confidence) == ("statistics-not-synchronized", 0)
    assert "they exchange something" in found.explanation


def test_the_mean_of_what_each_makes_of_its_own_is_foretold() -> None:
    """As of the largest: a sum would not mend it."""
    run = make_run((1 / 3,) * 3, known=True)
    (found,) = judge(run).findings
    assert (found.code, round(found.confidence, 3)) == (
        "statistics-not-synchronized",
        1,
    )
    assert "the mean of what the examples of each replica give" in found.explanation


def add_float32(factor: float = 1.0) -> Total:
    narrow = add_narrow("float32")
    return lambda parts: factor * np.asarray(narrow(parts), np.float64)


@pytest.mark.parametrize("known", [True, False], ids=["known", "grouped"])
def test_a_wide_statistic_may_be_summed_in_float32_on_one_device_too(
    known: bool,
) -> None:
    run = make_run(
        ADDED,
        known=known,
        counts=True,
        total=add_float32(),
        dtype="float64",
        rounded="float32",
    )
    judgement = judge(run)
    assert (judgement.status, list(judgement.findings)) == (Status.PASS, [])


@pytest.mark.parametrize("rounded", ["", "float32"])
def test_a_wide_statistic_that_is_more_wrong_than_that_fails(rounded: str) -> None:
    run = make_run(
        ADDED,
        known=True,
        counts=True,
        total=add_float32(1 + 2.0**-14),
        dtype="float64",
        rounded=rounded,
    )
    assert judge(run).status is Status.FAIL


def test_a_wide_statistic_that_the_cluster_alone_rounds_is_a_warning() -> None:
    run = make_run(ADDED, known=True, counts=True, total=add_float32(), dtype="float64")
    judgement = judge(run)
    (found,) = judgement.findings
    assert (found.code, judgement.status) == ("lower-precision", Status.PASS)
    assert "rounded to float32 on the way" in found.explanation
