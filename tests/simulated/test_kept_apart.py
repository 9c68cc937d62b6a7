"""Losses that are divided by what each replica has counted of its own examples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from grouped_losses import SHARDS, Batch, by_statistics, sum_squares
from grouped_training import KERNEL, Simulator

from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.split import shard_slices
from distbench.trace import INITIAL, WHOLE, Trace, TraceKey, Value, VariableInfo
from distbench.verdict import Status

F = np.float32
COUNT = VariableInfo(
    path="count",
    role="variable",
    shape=(),
    dtype="float32",
    synchronised=False,
    trainable=False,
    adds_up=True,
)
PARTS = shard_slices(SHARDS)
Add = Callable[[float, Batch], float]
"""What a copy holds after a step, from what it held and from the examples."""


def add_sizes(held: float, batch: Batch) -> float:
    return held + float(np.abs(batch[:, 0]).sum())


def decay_sizes(held: float, batch: Batch) -> float:
    return 0.5 * held + float(np.abs(batch[:, 0]).sum())


def hold_largest(held: float, batch: Batch) -> float:
    return max(0.5 * held, float((batch**2).sum(axis=1).max()))


def hold_product(held: float, batch: Batch) -> float:
    """No sum and no mean of what shards make of it, nor its end."""
    return 1 + held * float(np.abs(np.prod(batch[:, :2].sum(axis=0))))


class Dividing(Simulator):
    """Every loss is divided by a count that goes on from step to step."""

    def __init__(self, add: Add, compute: Callable[..., tuple[float, Batch]]) -> None:
        super().__init__(compute, weigh=self.weigh_own)
        self.add = add
        self.step = 0
        self.starts_jointly = False
        self.divisor = 1.0

    def find_count(self, step: int, part: slice | None = None) -> float:
        held = 1.0
        for before in range(step):
            batch = super().draw(before)
            held = self.add(held, batch if part is None else batch[part])
        return held

    def draw(self, step: int) -> Batch:
        self.step, self.divisor = step, self.find_count(step)
        return super().draw(step)

    def weigh_own(self, replica: int, _: tuple[int, ...]) -> float:
        return self.divisor / self.find_count(self.step, PARTS[replica])

    def run(
        self, batch: Batch, theta: Batch, compute: Callable[..., object] | None = None
    ) -> tuple[np.ndarray, Batch]:
        del compute
        loss, gradient = super().run(batch, theta)
        return np.asarray(F(loss / self.divisor)), F(gradient / F(self.divisor))

    def put_shards(
        self,
        values: dict[TraceKey, Value],
        step: int,
        batch: Batch,
        theta: Batch,
        times: int = 1,
    ) -> None:
        shared = self.divisor
        for replica, part in enumerate(PARTS):
            if not self.starts_jointly:
                self.divisor = self.find_count(step, part)
            one: dict[TraceKey, Value] = {}
            super().put_shards(one, step, batch, theta, times)
            values.update({k: v for k, v in one.items() if k.replica == replica})
            shard = np.repeat(super().draw(step)[part], times, axis=0)
            put_count(values, step, self.add(self.divisor, shard), replica)
            self.divisor = shared

    def make_run(self, **declared: bool) -> Evidence:
        evidence = self.make_evidence()
        jointly, again, doubled, own = ({} for _ in range(4))  # type: ignore[var-annotated]
        theta = {
            step: evidence.get_before(step, "variable", KERNEL.path) for step in (1, 2)
        }
        mixed = np.random.default_rng(1).permutation(self.draw(1))
        self.put_shards(own, 1, mixed, theta[1])
        self.starts_jointly = True
        self.put_shards(again, 1, mixed, theta[1])
        for step in (1, 2):
            batch = self.draw(step)
            self.put_shards(jointly, step, batch, theta[step])
            self.put_shards(doubled, step, batch, theta[step], times=2)
        info = replace(COUNT, **declared)
        regrouped = evidence.probes["regrouped"]
        probes = {
            **evidence.probes,
            "regrouped": replace(regrouped, values={**regrouped.values, **own}),
            "joint": self.make_trace(jointly, read=["count"]),
            "joint-regrouped": self.make_trace(again),
            "joint-doubled": self.make_trace(doubled),
        }
        return replace(
            evidence,
            reference=self.keep(evidence.reference, info, (WHOLE,)),
            observed=self.keep(evidence.observed, info, range(len(SHARDS))),
            twins=tuple(self.keep(t, info, (WHOLE,)) for t in evidence.twins),
            probes=probes,
        )

    def keep(self, trace: Trace, info: VariableInfo, replicas: object) -> Trace:
        values = dict(trace.values)
        for replica in replicas:  # type: ignore[attr-defined]
            part = None if replica == WHOLE else PARTS[replica]
            for step in (INITIAL, 0, 1, 2):
                put_count(values, step, self.find_count(step + 1, part), replica)
        return replace(trace, values=values, variables=(*trace.variables, info))


def put_count(
    values: dict[TraceKey, Value], step: int, count: float, replica: int
) -> None:
    key = TraceKey(step=step, phase="variable", variable="count", replica=replica)
    values[key] = np.asarray(count, F)


@pytest.mark.parametrize("add", [add_sizes, decay_sizes, hold_largest])
def test_a_count_of_all_that_each_reads_of_its_own_is_named(add: Add) -> None:
    judgement = judge(Dividing(add, sum_squares).make_run())
    assert judgement.status is Status.FAIL
    (finding,) = judgement.findings
    assert finding.code == "statistics-not-synchronized"
    assert (finding.step, finding.phase) == (1, "loss")
    assert finding.variables == ("count",)
    assert not judgement.message


def test_what_nobody_reads_as_that_of_all_may_be_own() -> None:
    judgement = judge(Dividing(add_sizes, sum_squares).make_run(adds_up=False))
    assert judgement.status is Status.PASS
    assert "what each replica has kept of its own examples" in judgement.message


def test_what_shards_do_not_make_up_has_no_value_of_all() -> None:
    judgement = judge(Dividing(hold_product, sum_squares).make_run())
    assert judgement.status is Status.PASS


def test_statistics_of_the_own_batch_leave_nothing_to_tell() -> None:
    judgement = judge(Dividing(add_sizes, by_statistics).make_run())
    assert judgement.status is Status.PASS
    assert "which examples are together in a batch" in judgement.message


@pytest.mark.parametrize(("step", "is_before"), [(0, True), (1, False)])
def test_what_is_wrong_sooner_is_named_before_it(step: int, is_before: bool) -> None:
    evidence = Dividing(add_sizes, sum_squares).make_run()
    observed = evidence.observed
    doubled = {
        key: np.asarray(2 * value, F)
        for key, value in observed.select(step=step, phase="reduced_gradient")
    }
    values = {**observed.values, **doubled}
    spoilt = replace(evidence, observed=replace(observed, values=values))
    told = [(f.code, f.step) for f in judge(spoilt).findings]
    apart = ("statistics-not-synchronized", 1)
    other = [found for found in told if found != apart]
    assert other
    assert told == ([*other, apart] if is_before else [apart, *other])
