"""What is known of a drawn program before it runs: what a mistake does to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from distbench.cluster import ClusterSpec
from distbench.samples.drawn.gradient import (
    Gradients,
    compute_gradients,
    weigh_examples,
)
from distbench.samples.drawn.problem import Array, Random, measure_rms
from distbench.samples.drawn.training import Plan, Rule
from distbench.split import shard_slices, split_unevenly

SENDING = ("optimizer", "own", "override", "two")
"""Paths on which each replica's own gradient is handed to a sum."""
_NEAR = 0.04


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Facts:
    """A plan on a cluster, with the gradients of its first step.

    Attributes:
        plan: The program.
        cluster: The cluster spec.
        shards: Examples of each replica.
        terms: Each replica's own gradients.
    """

    plan: Plan
    cluster: str
    shards: tuple[int, ...]
    terms: tuple[Gradients, ...]

    @property
    def replicas(self) -> int:
        """Number of replicas, N."""
        return len(self.shards)

    @property
    def names(self) -> tuple[str, ...]:
        """The trained variables."""
        return self.plan.order

    @property
    def dense(self) -> tuple[str, ...]:
        """Those whose gradients are dense."""
        sparse = self.plan.problem.list_sparse()
        return tuple(name for name in self.names if name not in sparse)

    @property
    def clips(self) -> bool:
        """Whether an optimizer clips: it may hide what came before."""
        return any(rule.clip for rule in self.plan.rules)

    @property
    def sends(self) -> bool:
        """Whether a step hands its gradients to a sum, and all of it is seen."""
        return (
            self.plan.path in SENDING
            and self.plan.parts == 1
            and not self.plan.minimised
        )

    @property
    def sends_sizes(self) -> bool:
        """Whether moreover a wrong factor shows in what follows."""
        return self.sends and not self.clips

    @property
    def sends_directions(self) -> bool:
        """Whether another direction of every gradient shows in what follows.

        Of a gradient of a few numbers a clip may leave the same whatever it was.
        """
        clips = {rule.clip for rule in self.plan.rules} - {""}
        if "clipvalue" in clips:
            return False
        least = min(self.sizes([name]) for name in self.names)
        return self.sends and (not clips or least >= 4)

    @property
    def reduces(self) -> bool:
        """Whether that sum is the program's own."""
        return self.sends_directions and self.plan.path in ("own", "override")

    @property
    def root(self) -> str:
        """The first phase in which a gradient is seen."""
        own = self.plan.path == "own" and self.plan.parts > 1
        return "reduced_gradient" if own else "local_gradient"

    @property
    def owns_slots(self) -> bool:
        """Whether the optimizer is written out, with slots that a mistake can reach."""
        return self.plan.path != "two" and self.plan.rule.own and not self.clips

    @property
    def steps(self) -> bool:
        """Whether every step is large enough beside its variable to be seen."""
        values = self.plan.problem.draw_values()
        return all(
            1e-4 < self.estimate_step(name) / measure_rms(values[name]) < 1
            for name in self.names
        )

    def find_rule(self, name: str) -> Rule:
        """The optimizer of a variable."""
        second = self.plan.path == "two" and name in self.names[self.plan.split :]
        return self.plan.rules[1 if second else 0]

    def estimate_step(self, name: str) -> float:
        """About how far a step moves a number of a variable."""
        rule = self.find_rule(name)
        if rule.kind in ("SGD", "OwnMomentum"):
            return rule.rate * measure_rms(self.total(name))
        if rule.kind in ("Adadelta", "Ftrl"):
            return 0.0  # these are not steps of a rate
        if rule.kind == "OwnMoments":
            size = measure_rms(self.total(name))
            return rule.rate * size / (size + float(rule.options["epsilon"]))
        return rule.rate

    def total(self, name: str) -> Array:
        """The right sum of a variable's gradients."""
        return np.asarray(sum(term.dense[name] for term in self.terms))

    def norms(self, name: str) -> list[float]:
        """Norms of a variable's gradients as TensorFlow takes them, by replica."""
        return [
            float(
                np.linalg.norm(
                    term.slices[name].values
                    if name in term.slices
                    else term.dense[name]
                )
            )
            for term in self.terms
        ]

    def sizes(self, names: Sequence[str] | None = None) -> int:
        """How many numbers some variables have together."""
        shapes = self.plan.problem.list_shapes()
        return sum(int(np.prod(shapes[n])) for n in (names or self.names))

    def list_large(self, least: int) -> tuple[str, ...]:
        """Variables with so many numbers at least."""
        return tuple(name for name in self.names if self.sizes([name]) >= least)

    def weights(self) -> Array:
        """What each shard counts in the mean that is the loss, N times its share."""
        counts = weigh_examples(self.plan.problem, self.plan.problem.draw_batch(0))
        parts = [np.sum(counts[part]) for part in shard_slices(self.shards)]
        return np.asarray(np.asarray(parts) * self.replicas / np.sum(counts))

    def pick_replica(self, rng: Random) -> int:
        """Any replica."""
        return int(rng.integers(self.replicas))

    def pick_names(self, rng: Random) -> tuple[str, ...]:
        """Some of the variables, or now and then all of them."""
        if rng.random() < 0.4:
            return tuple(self.names)
        count = int(rng.integers(1, len(self.names) + 1))
        return tuple(str(name) for name in rng.permutation(list(self.names))[:count])

    def pick_factor(self, rng: Random, low: float = 0.1, high: float = 10) -> float:
        """A factor that no other mistake leads to."""
        while True:
            factor = float(f"{np.exp(rng.uniform(np.log(low), np.log(high))):.3g}")
            if all(abs(factor / known - 1) > _NEAR for known in self._list_known()):
                return factor

    def _list_known(self) -> Iterator[float]:
        n, g, k = self.replicas, self.plan.problem.examples, 2 * self.plan.parts
        yield from (float(n) ** power for power in (-3, -2, -1, 0, 1, 2, 3))
        yield from (float(g), 1 / g, n / (n - 1), (n - 1) / n)
        for size in self.shards:
            yield from (g / size, g / size / n, g / size / n**2, 1 / size)
        yield from (float(w) for w in (1 / self.weights()))
        yield from (a / b for a in range(1, k + 1) for b in range(1, k + 1))
        yield from (float(i) for i in range(2, 10))


def make_facts(plan: Plan, cluster: str) -> Facts:
    """Work out what a plan does on a cluster."""
    replicas = ClusterSpec.parse(cluster).replicas
    shards = split_unevenly(plan.problem.examples, replicas)
    values, batch = plan.problem.draw_values(), plan.problem.draw_batch(0)
    return Facts(
        plan=plan,
        cluster=cluster,
        shards=shards,
        terms=tuple(
            compute_gradients(plan.problem, values, batch, part, 1 / replicas)
            for part in shard_slices(shards)
        ),
    )


def are_telling(facts: Facts) -> bool:
    """Whether every replica has a part in every gradient, and no two have the same."""
    for name in facts.names:
        parts = [measure_rms(term.dense[name]) for term in facts.terms]
        total = measure_rms(facts.total(name))
        if total == 0 or min(parts) < 1e-2 * total or total < 1e-3 * max(parts):
            return False
    return True
