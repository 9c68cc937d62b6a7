"""One replica that is wrong alone, in a sum over all of them and beside its shard."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gradient_values import Gradients, add_up, scale
from training_simulator import BIAS, KERNEL, TRAINED, Fault, observe

from distbench.diagnose.judge import judge
from distbench.verdict import Finding, Status

KNOWN = pytest.mark.parametrize("known", [True, False], ids=["optimizer", "program"])
REPLICAS = 3


def find_first(fault: Fault, *, known: bool, **setup: Any) -> Finding:
    setup = {"replicas": REPLICAS, "steps": 3, "shards_known": known, **setup}
    judgement = judge(observe(fault, **setup))
    assert judgement.status is Status.FAIL
    return judgement.findings[0]


def of_one(factor: float) -> Fault:
    """The gradients of replica 1 are some times what they are, in step 1."""

    def local(gradients: Gradients, replica: int, step: int) -> Gradients:
        is_meant = (replica, step) == (1, 1)
        return {
            path: scale(value, factor) if is_meant else value
            for path, value in gradients.items()
        }

    return Fault(local=local)


@pytest.mark.first(4)
@KNOWN
@pytest.mark.parametrize("factor", [8.0, 1.5, -1.0, REPLICAS, 16.0, 1 / REPLICAS])
def test_a_factor_of_one_replica_is_told_with_its_number(
    known: bool, factor: float
) -> None:
    finding = find_first(of_one(factor), known=known)
    assert (finding.code, finding.phase) == ("scale-error", "local_gradient")
    assert (finding.step, finding.replicas) == (1, (1,))
    assert finding.ratio == pytest.approx(factor, rel=1e-4)
    assert finding.confidence > 0.99


@KNOWN
def test_a_replica_without_loss_and_gradients_got_no_examples(known: bool) -> None:
    steps: list[int] = []
    lost = of_one(0.0)

    def local(gradients: Gradients, replica: int, step: int) -> Gradients:
        steps.append(step)
        return lost.local(gradients, replica, step)

    def loss(value: np.ndarray, replica: int) -> np.ndarray:
        return value * np.float32((replica, steps[-1]) != (1, 1))

    finding = find_first(Fault(local=local, loss=loss), known=known)
    assert (finding.code, finding.phase) == ("examples-missed", "loss")
    assert (finding.step, finding.replicas, finding.ratio) == (1, (1,), 0.0)


@KNOWN
def test_gradients_that_are_0_beside_a_right_loss_are_not_missed_examples(
    known: bool,
) -> None:
    finding = find_first(of_one(0.0), known=known)
    assert (finding.code, finding.phase) == ("replica-dropped", "local_gradient")
    assert (finding.replicas, finding.ratio) == ((1,), 0.0)


@KNOWN
def test_who_has_nan_is_named(known: bool) -> None:
    def local(gradients: Gradients, replica: int, step: int) -> Gradients:
        if (replica, step) != (1, 1):
            return gradients
        spoilt = np.array(gradients[KERNEL])
        spoilt[0, 0] = np.nan
        return {**gradients, KERNEL: spoilt}

    finding = find_first(Fault(local=local), known=known)
    assert (finding.code, finding.phase) == ("nonfinite", "local_gradient")
    assert (finding.step, finding.replicas) == (1, (1,))


@KNOWN
def test_a_loss_that_is_nan_is_one_finding_with_its_gradients(known: bool) -> None:
    """A shard without any weight divides 0 by 0; the sums are spoilt by it alone."""
    fault = Fault(scale=lambda r, setup: np.nan if r == 1 else 1.0)
    (finding,) = judge(observe(fault, shards_known=known, replicas=REPLICAS)).findings
    assert (finding.code, finding.phase) == ("nonfinite", "loss")
    assert (finding.replicas, finding.variables) == ((1,), ("", *TRAINED))


def test_nan_that_no_tape_gave_is_said_to_begin_later() -> None:
    def reduce(locals_: list[Gradients], step: int) -> list[Gradients]:
        spoilt = {**locals_[1], KERNEL: np.nan * np.array(locals_[1][KERNEL])}
        return [add_up([locals_[0], spoilt, *locals_[2:]]) for _ in locals_]

    finding = find_first(Fault(reduce=reduce), known=False)
    assert (finding.code, finding.phase) == ("nonfinite", "reduced_gradient")
    assert "all tapes give finite gradients" in finding.explanation


@KNOWN
def test_who_is_wrong_without_a_known_cause_is_named(known: bool) -> None:
    def local(gradients: Gradients, replica: int, step: int) -> Gradients:
        if (replica, step) != (1, 1):
            return gradients
        other = np.random.default_rng(7).normal(size=gradients[BIAS].shape)
        return {**gradients, BIAS: other.astype("float32")}

    finding = find_first(Fault(local=local), known=known)
    assert (finding.code, finding.step, finding.replicas) == ("unexplained", 1, (1,))


def test_where_all_are_wrong_nobody_is_singled_out() -> None:
    def local(gradients: Gradients, replica: int, step: int) -> Gradients:
        return {
            path: scale(value, 2.5) if step == 1 else value
            for path, value in gradients.items()
        }

    finding = find_first(Fault(local=local), known=False)
    assert finding.code == "scale-error"
    assert finding.ratio == pytest.approx(2.5, rel=1e-4)
    assert finding.replicas == (0, 1, 2)
