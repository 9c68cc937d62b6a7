"""What a wrong loss is called that somebody has looked inside of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from exchanging import note
from grouped_losses import by_statistics
from grouped_training import Simulator
from inside_runs import ROWS, Program

from distbench.compare.arrays.measure import Margin
from distbench.compare.arrays.pair import GLOBAL, Pair
from distbench.compare.inside.intermediates import find_astray
from distbench.diagnose.clues.astray import describe_own, find_times
from distbench.diagnose.clues.context import Context
from distbench.diagnose.hypotheses.astray import explain_by_own_value
from distbench.diagnose.judge import judge
from distbench.evidence import Inside
from distbench.trace import TraceKey
from distbench.verdict import Finding


def find(inside: Inside | None) -> Finding:
    """The finding of replicas that exchange features and go wrong."""
    evidence = note(Simulator(by_statistics).make_evidence(), "features")
    (finding,) = judge(replace(evidence, inside=inside)).findings
    return finding


def share(values: Any) -> Any:
    return np.sum(values) / np.float32(len(ROWS))


def look(made: str = "Mean", join: Any = None) -> Inside:
    """What a program shows that weighs its examples by something of the own ones."""
    program = Program()
    program.give()
    function = {"Mean": np.mean, "Max": np.max, "Sum": np.sum}[made]
    name = program.compute("middle", made, ["rows"], lambda v: np.float32(function(v)))
    if join is not None:
        name = program.exchange("joined", name, join)
        program.whole[name] = program.whole["middle"]
        program.alone[name] = program.alone["middle"]
    program.compute("bent", "Hypot", ["rows", name], np.hypot)
    program.compute("loss", "Sum", ["bent"], share)
    return program.end("loss")


def lose(parts: Sequence[Any]) -> list[Any]:
    return [0 * part for part in parts]


def average(parts: Sequence[Any]) -> list[Any]:
    return [sum(parts) / len(parts)] * len(parts)


def double(parts: Sequence[Any]) -> list[Any]:
    return [2 * sum(parts)] * len(parts)


def test_without_a_look_no_line_is_known() -> None:
    finding = find(None)
    assert finding.code == "unexplained"
    assert "model.py" not in finding.explanation


@pytest.mark.parametrize(
    ("inside", "code"),
    [
        (look("Mean"), "statistics-not-synchronized"),
        (look("Max"), "statistics-not-synchronized"),
        (look("Mean", average), "mean-of-means"),
        (look("Max", average), "statistics-not-synchronized"),
        (look("Sum", double), "scale-error"),
    ],
    ids=["mean", "largest", "mean-of-means", "mean-of-largest", "sum-counted-twice"],
)
def test_a_look_names_the_line_and_what_is_wrong_there(
    inside: Inside, code: str
) -> None:
    finding = find(inside)
    assert (finding.code, finding.phase, finding.step) == (code, "loss", 0)
    place = "joined" if code == "scale-error" else "middle"
    assert f"model.py:{place}, `{place} = ...`" in finding.explanation
    assert finding.confidence == 1.0


def test_the_ratio_of_what_all_have_alike_is_told() -> None:
    finding = find(look("Sum", double))
    assert finding.ratio == pytest.approx(2, rel=1e-6)
    assert "2 times as much" in finding.explanation


def explain_ratio(inside: Inside, factor: float) -> float | None:
    """The ratio that is told where all of a loss has a factor."""
    evidence = note(Simulator(by_statistics).make_evidence(), "features")
    case = Pair(
        key=TraceKey(step=0, phase="loss"),
        relation="reference",
        against=GLOBAL,
        observed=np.full((), factor),
        expected=np.ones(()),
        margin=Margin(),
        dtype="float32",
    )
    looked = replace(evidence, inside=inside)
    context = Context(evidence=looked, phase="loss", cases=(case,))
    (found,) = explain_by_own_value(context)
    assert found.code == "scale-error"
    is_undone = "for which the rest of the loss makes up" in found.detail
    assert is_undone is (found.ratio not in (0, 2))
    return found.ratio


def test_what_all_have_0_times_is_a_multiple() -> None:
    assert explain_ratio(look("Sum", lose), 0.0) == 0


@pytest.mark.parametrize(
    ("power", "more", "told"),
    [(1, 0, 0), (-1, 0, 0), (1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1)],
    ids=["as-is", "divisor", "n-times", "share", "divisor-n", "divisor-share"],
)
def test_a_factor_of_the_replicas_that_the_loss_makes_up_for_is_meant(
    power: int, more: int, told: int
) -> None:
    """All have 2 times what one device has; the loss is wrong by that and by N."""
    n = Simulator(by_statistics).make_evidence().observed.replicas
    factor = 2.0**power * float(n) ** more
    assert explain_ratio(look("Sum", double), factor) == pytest.approx(
        2 * float(n) ** told, rel=1e-6
    )


def test_a_loss_that_no_such_factor_has_tells_none() -> None:
    assert explain_ratio(look("Sum", double), 0.77) == pytest.approx(2, rel=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
@pytest.mark.parametrize("times", [0, 2, 3])
def test_multiples_of_narrow_numbers_are_told_as_they_are(
    dtype: Any, times: int
) -> None:
    whole = np.random.default_rng(0).normal(size=5000).astype(dtype)
    part = (whole.astype(np.float32) * times).astype(dtype)
    (seen,) = find_astray(look("Sum", double), 0)
    one = replace(seen, whole=whole, parts=(part, part))
    assert find_times([one]) == pytest.approx(times, rel=1e-3, abs=1e-12)


def test_terms_that_are_own_means_are_not_scaled() -> None:
    for divisor, code in ((1.0, "loss-not-scaled"), (2.0, "mean-of-means")):
        program = Program()
        program.give()
        program.compute("loss", "Sum", ["rows"], share)
        program.compute("mean", "Mean", ["rows"], lambda v: np.float32(5 + np.mean(v)))
        program.compute(
            "term",
            "Mul",
            ["mean"],
            lambda v: v,
            replica=lambda v, divisor=divisor: v / divisor,
        )
        program.compute("both", "AddV2", ["loss", "term"], lambda a, b: a + b)
        assert find(program.end("both")).code == code


@pytest.mark.parametrize("divisor", [1.0, 2.0])
def test_the_largest_of_the_own_examples_is_no_mean(divisor: float) -> None:
    program = Program()
    program.give()
    program.compute("worst", "Max", ["rows"], lambda v: np.float32(np.max(v)))
    program.compute(
        "term", "Mul", ["worst"], lambda v: v, replica=lambda v: v / divisor
    )
    finding = find(program.end("term"))
    assert finding.code == "statistics-not-synchronized"
    assert "Divide by" not in finding.explanation
    assert "gather what it is the largest" in finding.explanation


def test_where_a_program_takes_of_its_own_shard_is_told_in_a_note() -> None:
    note = describe_own(look("Max"))
    assert note == (
        "note: what is taken of the own shard begins at model.py:middle, `middle = ...`"
    )
    program = Program()
    program.give()
    program.compute("loss", "Sum", ["rows"], share)
    assert not describe_own(program.end("loss"))


def test_a_number_of_examples_is_nothing_that_is_taken_of_them() -> None:
    """A note names what is made of it; a wrong loss may be wrong by it."""
    program = Program()
    program.give()
    program.compute("size", "Size", ["rows"], lambda v: np.int32(len(v)))
    program.compute("places", "Range", ["size"], np.arange)
    program.compute("bent", "Mul", ["rows", "places"], lambda v, p: v * p[:, None])
    program.compute("loss", "Sum", ["bent"], share)
    inside = program.end("loss")
    assert "model.py:places" in find(inside).explanation
    assert describe_own(inside).endswith("begins at model.py:bent, `bent = ...`")


def test_what_one_replica_has_is_no_multiple_if_all_have_it() -> None:
    """As where the losses of the first replica's layers are those of all."""
    program = Program()
    program.give()
    own = program.compute("own", "Sum", ["rows"], share)
    name = program.exchange("joined", own, lambda parts: [parts[1]] * 2)
    program.whole[name], program.alone[name] = program.whole[own], program.alone[own]
    finding = find(program.end(name))
    assert finding.code == "unexplained"
    assert "all have what the examples of replica 1 alone give" in finding.explanation


@pytest.mark.parametrize(
    ("of", "code"), [("rows", "loss-not-scaled"), ("", "regularizer-not-scaled")]
)
def test_what_every_replica_adds_in_full_is_told_by_what_it_is_made_of(
    of: str, code: str
) -> None:
    program = Program()
    program.give()
    program.compute("loss", "Sum", ["rows"], share)
    name = program.read("penalty", 0.25, 0.25)
    if of:  # as what was summed over the replicas before
        program.compute("counted", "Sum", [of], lambda v: np.float32(len(v)))
        name = program.exchange("all", "counted", lambda parts: [sum(parts)] * 2)
        program.whole[name] = program.whole["counted"]
        program.alone[name] = program.alone["counted"]
    program.compute("both", "AddV2", ["loss", name], lambda a, b: a + b)
    finding = find(program.end("both"))
    assert finding.code == code
    assert "model.py:both" in finding.explanation
    assert "each adds in full what is the same on all" in finding.explanation


def test_what_no_code_is_about_is_told_with_its_place() -> None:
    program = Program()
    program.give()
    program.compute("places", "Range", ["rows"], lambda v: np.arange(len(v)))
    program.compute("bent", "Mul", ["rows", "places"], lambda v, p: v * p[:, None])
    program.compute("loss", "Sum", ["bent"], share)
    finding = find(program.end("loss"))
    assert finding.code == "unexplained"
    assert "model.py:places" in finding.explanation
    assert "in element [5] of all rows replicas have 0 there, one device 5" in (
        finding.explanation
    )
    assert "Mend what is made there" in finding.explanation


def test_an_addend_under_a_floor_for_the_sum_is_told() -> None:
    program = Program()
    program.give()
    program.compute("loss", "Sum", ["rows"], share)
    program.compute("middle", "Sum", ["rows"], lambda v: np.float32(share(v**2)))
    program.compute("floor", "Maximum", ["middle"], lambda v: np.maximum(v, 2))
    program.made[-1] = replace(program.made[-1], parents=("middle", "number"))
    program.compute("both", "AddV2", ["loss", "floor"], lambda a, b: a + b)
    finding = find(program.end("both"))
    assert finding.code == "statistics-not-synchronized"
    assert "against a limit for that sum; add up over all" in finding.explanation
