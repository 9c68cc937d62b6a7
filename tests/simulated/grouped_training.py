"""Programs whose result depends on grouping, on order or on chance, in NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from grouped_losses import SHARDS, WIDTH, Batch, Compute, Shards

from distbench.evidence import Evidence, Measure
from distbench.fed import Fed
from distbench.split import shard_slices
from distbench.trace import INITIAL, WHOLE, Phase, Trace, TraceKey, Value, VariableInfo
from distbench.worker.one_device.repeating import repeat_rows

LAST = (3, 1, 1)
RATE = np.float32(0.125)
KERNEL = VariableInfo(
    path="kernel",
    role="variable",
    of="",
    shape=(WIDTH,),
    dtype="float32",
    synchronised=True,
    trainable=True,
)


class Simulator:
    """Runs a program on one device and on a cluster; the rule is gradient descent.

    Args:
        compute: What one device computes of a batch.
        weigh: Factor of replica r's loss and gradient on the cluster, given the shards.
        reduce: Replica r's reduced gradient from all local ones.
        scatter: Size of the random numbers in every gradient.
        order_matters: Whether an example weighs more the later it comes.
        dropped: Share of the inputs that a seed, which is state, leaves out.
        on_cluster: What a replica computes, if that is another function.
        last: Shards of the last of three steps, if they have other sizes.
        hand_on: What the rule is given in the place of the sum.
        spoilt: Example that is so large in the second step that gradients overflow.
    """

    def __init__(
        self,
        compute: Compute,
        weigh: Callable[[int, Shards], float] = lambda *_: 1.0,
        reduce: Callable[[list[Batch], int], Batch] = lambda parts, _: sum(parts),  # type: ignore[arg-type, return-value]  # NumPy's sum
        *,
        scatter: float = 0.0,
        order_matters: bool = False,
        dropped: float = 0.0,
        on_cluster: Compute | None = None,
        last: Shards = SHARDS,
        hand_on: Callable[[Batch], Batch] = lambda total: total,
        spoilt: int | None = None,
    ) -> None:
        self.compute = compute
        self.on_cluster = on_cluster or compute
        self.weigh = weigh
        self.reduce = reduce
        self.scatter = scatter
        self.order_matters = order_matters
        self.dropped = dropped
        self.last = last
        self.hand_on = hand_on
        self.spoilt = spoilt
        self.seed = 0
        self.rng = np.random.default_rng(3)
        self.theta = self.rng.normal(size=WIDTH).astype(np.float32)

    def run(
        self, batch: Batch, theta: Batch, compute: Compute | None = None
    ) -> tuple[np.ndarray, Batch]:
        if self.order_matters:
            batch = batch * np.linspace(0.5, 2, len(batch), dtype=np.float32)[:, None]
        if self.dropped:
            # The same in every run from the same seed, whichever examples they fall to.
            kept = np.random.default_rng(self.seed).random((len(batch), WIDTH))
            batch = batch.copy()
            batch[:, :-1] *= (kept > self.dropped) / np.float32(1 - self.dropped)
        loss, gradient = (compute or self.compute)(batch, theta)
        noise = 1 + self.scatter * self.rng.normal(size=WIDTH + 1)
        return np.float32(loss * noise[0]), np.float32(gradient * noise[1:])

    def make_trace(self, values: dict[TraceKey, Value], **notes: object) -> Trace:
        return Trace(
            name="simulated",
            replicas=len(SHARDS),
            shards=SHARDS,
            variables=(KERNEL,),
            values=values,
            notes=notes,
            resized={2: self.last} if self.last != SHARDS else {},
        )

    def find_shards(self, step: int) -> Shards:
        return self.last if step == 2 else SHARDS

    @np.errstate(all="ignore")
    def make_evidence(self) -> Evidence:
        reference: dict[TraceKey, Value] = {}
        observed: dict[TraceKey, Value] = {}
        replay: dict[TraceKey, Value] = {}
        doubles: dict[TraceKey, Value] = {}
        triples: dict[TraceKey, Value] = {}
        fourfold: dict[TraceKey, Value] = {}
        twins: list[dict[TraceKey, Value]] = [{} for _ in range(8)]
        theta = self.theta
        put(reference, INITIAL, "variable", theta)
        for replica in range(len(SHARDS)):
            put(observed, INITIAL, "variable", theta, replica)
        for step in range(3):
            batch = self.draw(step)
            loss, gradient = self.run(batch, theta)
            self.put_step(reference, step, loss, gradient, theta)
            for number, twin in enumerate(twins):
                order = np.arange(len(batch))
                if number % 2 == 0:
                    order = self.rng.permutation(order)
                near = np.nextafter(theta, np.float32(np.inf))
                self.put_step(twin, step, *self.run(batch[order], near), theta)
            self.put_shards(reference, step, batch, theta)
            self.put_cluster(observed, replay, step, batch, theta)
            self.put_shards(doubles, step, batch, theta, times=2)
            self.put_shards(triples, step, batch, theta, times=3)
            theta = theta - RATE * self.hand_on(gradient)
        other = self.rng.permutation(self.draw(0))
        doubled = self.draw(0)[: SHARDS[0]].repeat(2, axis=0)
        probes: dict[str, dict[TraceKey, Value]] = {"regrouped": {}, "doubled": doubles}
        self.put_shards(probes["regrouped"], 0, other, self.theta)
        probes |= self.swap(self.draw(0))
        probes |= self.draw_again(doubled)
        self.put_shards(fourfold, 0, self.draw(0), self.theta, times=4)
        probes |= {"tripled": triples, "quadrupled": fourfold}
        return Evidence(
            tier="bounded",
            observed=self.make_trace(observed),
            reference=self.make_trace(reference, repeats=self.scatter == 0),
            twins=tuple(
                self.make_trace(twin, permuted=number % 2 == 0)
                for number, twin in enumerate(twins)
            ),
            probes={name: self.make_trace(found) for name, found in probes.items()},
            fed=Fed(replays={"reduced_gradient": self.make_trace(replay)}),
            measure=Measure(shards_known=False),
        )

    def swap(self, batch: Batch) -> dict[str, dict[TraceKey, Value]]:
        """The largest shard with examples of others in the place of some of its own."""
        size = SHARDS[0]
        mine, others = (
            np.arange(size),
            self.rng.permutation(np.arange(size, len(batch))),
        )
        swaps = {"first": [0, 1, 2], "last": [3, 4, 5], "both": [0, 1, 2, 3, 4, 5]}
        found: dict[str, dict[TraceKey, Value]] = {}
        for name, places in swaps.items():
            rows = np.sort([*np.delete(mine, places), *others[places]])
            loss, gradient = self.run(batch[rows], self.theta)
            values = found[f"swapped-{name}"] = {}
            put(values, 0, "loss", loss, 0)
            put(values, 0, "local_gradient", gradient, 0)
        return found

    def draw_again(self, doubled: Batch) -> dict[str, dict[TraceKey, Value]]:
        """The largest shard and its double, with other random numbers each time."""
        if not self.dropped:
            return {}
        found: dict[str, dict[TraceKey, Value]] = {"once": {}, "twice": {}}
        for number in range(48):
            self.seed = number + 1
            for name, batch in (("once", doubled[::2]), ("twice", doubled)):
                loss, gradient = self.run(batch, self.theta)
                put(found[name], number, "loss", loss, 0)
                put(found[name], number, "local_gradient", gradient, 0)
        self.seed = 0
        return found

    def draw(self, step: int) -> Batch:
        rng = np.random.default_rng(step)
        examples = sum(self.find_shards(step))
        batch = rng.normal(size=(examples, WIDTH + 1)).astype(np.float32)
        if step == 1 and self.spoilt is not None:
            batch[self.spoilt] *= np.float32(1e20)
        return batch

    def put_step(
        self,
        values: dict[TraceKey, Value],
        step: int,
        loss: np.ndarray,
        gradient: Batch,
        theta: Batch,
    ) -> None:
        put(values, step, "loss", loss)
        put(values, step, "local_gradient", gradient)
        handed = self.hand_on(gradient)
        for phase in ("reduced_gradient", "applied_gradient"):
            put(values, step, phase, handed)
        put(values, step, "variable", theta - RATE * handed)

    def put_shards(
        self,
        values: dict[TraceKey, Value],
        step: int,
        batch: Batch,
        theta: Batch,
        times: int = 1,
    ) -> None:
        shards = self.find_shards(step)
        for replica, part in enumerate(shard_slices(shards)):
            shard = repeat_rows(batch[part], times)
            loss, gradient = self.run(shard, theta)
            put(values, step, "loss", loss, replica)
            put(values, step, "local_gradient", gradient, replica)

    def put_cluster(
        self,
        observed: dict[TraceKey, Value],
        replay: dict[TraceKey, Value],
        step: int,
        batch: Batch,
        theta: Batch,
    ) -> None:
        parts = []
        shards = self.find_shards(step)
        for replica, part in enumerate(shard_slices(shards)):
            loss, gradient = self.run(batch[part], theta, self.on_cluster)
            factor = np.float32(self.weigh(replica, shards))
            put(observed, step, "loss", loss * factor, replica)
            put(observed, step, "local_gradient", gradient * factor, replica)
            parts.append(gradient * factor)
        for replica in range(len(SHARDS)):
            reduced = np.float32(self.hand_on(self.reduce(parts, replica)))
            put(observed, step, "reduced_gradient", reduced, replica)
            for values in (observed, replay):
                put(values, step, "applied_gradient", reduced, replica)
                put(values, step, "variable", theta - RATE * reduced, replica)


def put(
    values: dict[TraceKey, Value],
    step: int,
    phase: Phase,
    value: np.ndarray,
    replica: int = WHOLE,
) -> None:
    name = "" if phase == "loss" else "kernel"
    key = TraceKey(step=step, phase=phase, variable=name, replica=replica)
    values[key] = np.asarray(value, np.float32)


def by_share(replica: int, shards: Shards) -> float:
    return shards[replica] / sum(shards)


def by_first_share(replica: int, _: Shards) -> float:
    return by_share(replica, SHARDS)


def lose_last(parts: list[Batch], _: int) -> Batch:
    return np.asarray(sum(parts[:-1]))


def lose_sum(parts: list[Batch], replica: int) -> Batch:
    return parts[replica]
