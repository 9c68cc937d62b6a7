"""Models with arrays that the traces keep as files of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distbench
from distbench.trace.shelf import LARGE_BYTES
from distbench.verdict import Status

pytestmark = pytest.mark.cluster
WIDTH = 300
EXAMPLES = 8


class Wide:
    """A regression with a kernel that is large to a trace, trained by Adam.

    Args:
        reduction: How gradients are reduced by hand; empty leaves it to the optimizer.
    """

    loss_reduction = "sum"

    def __init__(self, reduction: str = "") -> None:
        self._reduction = reduction

    def build(self, strategy: Any) -> None:
        del strategy
        import tensorflow as tf
        from tf_keras.optimizers import legacy

        start = tf.random.stateless_normal((WIDTH, WIDTH), [1, 2]) * 0.05
        self._kernel = tf.Variable(start)
        self._optimizer = legacy.Adam(1e-2)

    def variables(self) -> list[Any]:
        return [self._kernel]

    def optimizer(self) -> Any:
        return self._optimizer

    def data(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(step)
        shape = (EXAMPLES, WIDTH)
        return tuple(rng.normal(size=shape).astype(np.float32) for _ in range(2))

    def replica_step(self, batch: Any) -> Any:
        import tensorflow as tf

        features, labels = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((features @ self._kernel - labels) ** 2) / EXAMPLES
        gradient = tape.gradient(loss, self._kernel)
        options = {}
        if self._reduction:
            context = tf.distribute.get_replica_context()
            gradient = context.all_reduce(self._reduction, gradient)
            options["experimental_aggregate_gradients"] = False
        self._optimizer.apply_gradients([(gradient, self._kernel)], **options)
        return loss


@pytest.mark.parametrize(
    ("reduction", "codes"),
    [
        ("mean", ["mean-instead-of-sum"]),
        ("", []),
    ],
    ids=["fault", "right"],
)
def test_a_large_variable_is_judged_as_a_small_one(
    reduction: str, codes: list[str]
) -> None:
    assert WIDTH * WIDTH * 4 > LARGE_BYTES
    verdict = distbench.check(Wide(reduction), "mwms:2", tiers=["bounded"], steps=2)
    assert [finding.code for finding in verdict.findings] == codes
    assert all(finding.confirmed for finding in verdict.findings)
    (run,) = verdict.runs
    assert run.status is (Status.FAIL if codes else Status.PASS)
    # The kernel alone, before the first step and after each.
    assert run.disk_bytes > 3 * WIDTH * WIDTH * 4
