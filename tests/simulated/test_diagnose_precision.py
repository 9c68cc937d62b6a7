"""Numbers that were rounded to a narrow dtype, and such that only look like it."""

from __future__ import annotations

import numpy as np
import pytest
from gradient_values import add_up, scale, to_array
from planted_case import check_passed
from simulated_rule import Rule
from training_simulator import BIAS, HEAD, KERNEL, Fault, observe
from wrong_steps import round_bf16

from distbench.diagnose.hypotheses.precision import is_representable
from distbench.diagnose.judge import judge
from distbench.verdict import Status


def test_double_precision_alone_is_no_lower_precision():
    check_passed(judge(observe(dtype="float64", rule=Rule(name="adam"), steps=1)))


@pytest.mark.parametrize(
    ("values", "spare", "expected"),
    [
        ([0.5], 29.0, True),  # one float64 with 29 zeros at its end
        ([0.5], 13.0, False),  # one float32 that is a float16 may be chance
        ([0.5, 0.25], 13.0, True),
        ([0.5, 0.1], 29.0, False),
        ([0.0, 0.0], 29.0, False),
    ],
)
def test_numbers_of_a_narrow_dtype_are_no_chance_if_they_have_enough_zeros(
    values, spare, expected
):
    assert is_representable(np.array(values), "float16", spare) is expected


@pytest.mark.parametrize("seed", [2, 4])
def test_numbers_of_a_grid_are_not_taken_for_rounded_ones(seed):
    """Most are those of a narrow dtype before a replica rounds the others up."""

    def round_up(new, old, gradients, run):
        value = new[KERNEL]
        is_odd = (np.round(value * 256) % 2 == 1) & (np.abs(value) >= 1)
        return {**new, KERNEL: (value + is_odd / 256).astype(np.float32)}

    grid = Rule(constraint=lambda _, v: (np.round(v * 256) / 256).astype(v.dtype))
    evidence = observe(Fault(update=round_up), rule=grid, steps=1, seed=seed)
    (finding,) = judge(evidence).findings
    assert finding.code == "unexplained"


def to_unit(gradients):
    """One step as long as all others, whatever the gradient."""
    return {
        k: scale(v, 1 / np.linalg.norm(to_array(v).astype(np.float32)))
        for k, v in gradients.items()
    }


def narrow(locals_, kept, factor=1.0):
    """What is left of a sum in bfloat16, to unit norms."""

    def add(values):
        total = round_bf16(to_array(values[0]))
        for value in values[1:]:
            total = round_bf16(total + round_bf16(to_array(value)))
        return total

    made = {k: add([g[k] for g in locals_[:kept]]) for k in locals_[0]}
    return [{k: scale(v, factor) for k, v in to_unit(made).items()} for _ in locals_]


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("kept", "factor", "is_right"),
    [(3, 1.0, True), (2, 1.0, False), (3, 1.01, False)],
    ids=["right", "one-is-dropped", "another-norm"],
)
def test_a_narrow_sum_is_told_behind_a_norm_that_divides_it(kept, factor, is_right):
    """One device divides what it rounds as well, by a norm that is another's."""
    fault = Fault(reduce=lambda locals_, step: narrow(locals_, kept, factor))
    judgement = judge(observe(fault, replicas=3, sparse=False, alone=to_unit))
    codes = {finding.code for finding in judgement.findings}
    assert (codes == {"lower-precision"}) is is_right
    assert judgement.status is (Status.PASS if is_right else Status.FAIL)


def test_a_number_alone_is_narrow_with_others_that_tell():
    """Partial sums of three replicas in float16: head and bias are one number each."""

    def reduce(locals_, step):
        total = {
            path: sum(to_array(g[path]).astype(np.float16) for g in locals_)
            for path in locals_[0]
        }
        wide = {path: value.astype(np.float32) for path, value in total.items()}
        return [wide for _ in locals_]

    judgement = judge(observe(Fault(reduce=reduce), width=1, replicas=3))
    assert [f.code for f in judgement.findings] == ["lower-precision"]
    assert set(judgement.findings[0].variables) >= {KERNEL, BIAS, HEAD}
    assert judgement.status is Status.PASS


@pytest.mark.parametrize("factor", [1.0, 1.01], ids=["right", "another-norm"])
def test_float32_is_told_in_float64_by_ratios(factor):
    """Of 2**23 numbers with which the largest could have begun, none is tried."""

    def reduce(locals_, step):
        total = {
            path: sum(to_array(g[path]).astype(np.float32) for g in locals_)
            for path in locals_[0]
        }
        wide = {path: value.astype(np.float64) for path, value in total.items()}
        return [{k: scale(v, factor) for k, v in to_unit(wide).items()}] * len(locals_)

    evidence = observe(
        Fault(reduce=reduce), replicas=3, sparse=False, alone=to_unit, dtype="float64"
    )
    judgement = judge(evidence)
    codes = {finding.code for finding in judgement.findings}
    assert (codes == {"lower-precision"}) is (factor == 1)


def round_all(gradients):
    return {k: round_bf16(to_array(v)) for k, v in gradients.items()}


@pytest.mark.parametrize("rounded", [(2,), (0, 1)], ids=str)
def test_some_replicas_that_round_their_gradients_are_named(rounded):
    def reduce(locals_, step):
        parts = [
            round_all(own) if r in rounded else own for r, own in enumerate(locals_)
        ]
        return [add_up(parts) for _ in locals_]

    evidence = observe(Fault(reduce=reduce), replicas=3, shards=(6, 5, 5), sparse=False)
    judgement = judge(evidence)
    (finding,) = judgement.findings
    assert (finding.code, finding.phase) == ("lower-precision", "reduced_gradient")
    assert finding.replicas == rounded
    assert judgement.status is Status.PASS
