"""Judging losses of two terms, each divided by a count of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from grouped_losses import WIDTH, Batch
from grouped_training import KERNEL, Simulator

from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.trace import Trace, TraceKey, Value
from distbench.verdict import Status

PARTS = {"first": slice(0, 6), "second": slice(6, 12), "both": slice(12, WIDTH)}
"""Of the kernel: what one term of a loss depends on, the other one, and both."""


def count_weights(batch: Batch) -> tuple[float, float]:
    """Of a loss with two terms, each with weights of its own."""
    marked, weighed = _weigh(batch)
    return float(marked.sum()), float(weighed.sum())


def _weigh(batch: Batch) -> tuple[Batch, Batch]:
    marked = 1 + (np.abs(batch[:, 0]) > 0.7)
    return marked.astype(np.float32), np.abs(batch[:, 1]) + np.float32(0.1)


def add_two_means(
    batch: Batch, theta: Batch, counts: tuple[float, float]
) -> tuple[float, Batch]:
    """Both terms over these counts."""
    x, y = batch[:, :-1], batch[:, -1]
    gradient = np.zeros(WIDTH, np.float32)
    loss = 0.0
    parts = PARTS["first"], PARTS["second"]
    for part, weights, count in zip(parts, _weigh(batch), counts, strict=True):
        seen = x.copy()
        seen[:, : PARTS["both"].start] = 0
        seen[:, part] = x[:, part]
        rest = weights * (seen @ theta - y) / np.float32(count)
        loss += float(rest @ (seen @ theta - y)) / 2
        gradient += seen.T @ rest
    return loss, gradient


class TwoTerms(Simulator):
    """A loss with two terms; on a cluster each is divided by what all replicas count.

    Args:
        divide: What a replica divides by, given what all count and what it does itself.
    """

    def __init__(
        self,
        divide: Callable[..., tuple[float, float]] = lambda counts, _: counts,
    ) -> None:
        super().__init__(
            lambda batch, theta: add_two_means(batch, theta, count_weights(batch)),
            on_cluster=lambda batch, theta: add_two_means(
                batch, theta, divide(self.counts, count_weights(batch))
            ),
        )
        self.counts = (0.0, 0.0)

    def put_cluster(
        self,
        observed: dict[TraceKey, Value],
        replay: dict[TraceKey, Value],
        step: int,
        batch: Batch,
        theta: Batch,
    ) -> None:
        self.counts = count_weights(batch)
        super().put_cluster(observed, replay, step, batch, theta)

    def make_evidence(self) -> Evidence:
        evidence = super().make_evidence().change_traces(cut_kernel)
        probes = {name: cut_kernel(trace) for name, trace in evidence.probes.items()}
        return replace(evidence, probes=probes)


def cut_kernel(trace: Trace) -> Trace:
    """The same with a variable for each part."""
    values: dict[TraceKey, Value] = {}
    for key, value in trace.values.items():
        if key.variable != "kernel":
            values[key] = value
            continue
        for name, part in PARTS.items():
            values[replace(key, variable=name)] = np.asarray(value)[part]
    infos = tuple(replace(KERNEL, path=name, shape=(6,)) for name in PARTS)
    return replace(trace, values=values, variables=infos)


def test_a_loss_with_two_counts_passes() -> None:
    assert judge(TwoTerms().make_evidence()).status is Status.PASS


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("divide", "code", "wrong"),
    [
        (lambda all_, own: (3 * own[0], all_[1]), "mean-of-means", "first"),
        (lambda all_, own: (all_[0], own[1]), "loss-not-scaled", "second"),
    ],
)
def test_of_two_counts_the_wrong_one_is_told(
    divide: Callable[..., tuple[float, float]], code: str, wrong: str
) -> None:
    """Gradients that the other term alone reaches are right, and nobody blames them."""
    (finding,) = judge(TwoTerms(divide).make_evidence()).findings
    assert (finding.code, finding.phase) == (code, "loss")
    assert finding.variables == ("", *sorted((wrong, "both"), reverse=wrong > "both"))
    assert finding.confidence > 0.999
