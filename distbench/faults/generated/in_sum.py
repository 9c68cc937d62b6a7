"""Mistakes in summing the gradients over the replicas."""

from __future__ import annotations

import itertools

import numpy as np

from distbench.faults.generated.mistake import Drawn, mistake
from distbench.samples.lazy import tf
from distbench.samples.replicas import (
    all_reduce,
    count_replicas,
    find_replica,
    make_own_zeros,
    pass_through,
)

_PHASE = "reduced_gradient"


class OfSome:
    """Changes the gradients of some variables on each replica before the sum."""

    concerned = ()

    def transform(self, gradients):
        if count_replicas() == 1:
            return gradients
        return [
            self.change(tf.convert_to_tensor(gradient))
            if name in self.concerned
            else gradient
            for name, gradient in zip(self.plan.order, gradients, strict=True)
        ]


@mistake("missing-reduction", _PHASE, like="keras-team/keras#19308")
class NobodySums:
    """No gradient is summed; each replica goes on with a multiple of its own."""

    @staticmethod
    def draw(rng, facts):
        if not facts.sends_sizes:
            return None
        n = facts.replicas
        numbers = {"times": float(rng.choice([1.0, n, 1 / n]))}
        return Drawn(variables=facts.names, numbers=numbers)

    def transform(self, gradients):
        times = self.times if count_replicas() > 1 else 1.0
        return [tf.convert_to_tensor(gradient) * times for gradient in gradients]

    def reduce(self, gradients):
        return list(gradients)

    def aggregate(self):
        sums = self.plan.path == "override" or count_replicas() == 1
        return {"experimental_aggregate_gradients": sums and self.plan.path != "own"}


@mistake("variable-not-reduced", _PHASE, like="horovod/horovod#2279")
class SomeNotSummed:
    """Some gradients are not summed, others are."""

    @staticmethod
    def draw(rng, facts):
        if not facts.reduces or facts.clips or len(facts.names) < 2:
            return None
        names = facts.pick_names(rng)[: len(facts.names) - 1]
        n = facts.replicas
        times = float(rng.choice([1.0, n, 1 / n]))
        return Drawn(variables=names, numbers={"concerned": names, "times": times})

    def reduce(self, gradients):
        if count_replicas() == 1:
            return super().reduce(gradients)
        pairs = zip(self.plan.order, gradients, strict=True)
        return [
            tf.convert_to_tensor(gradient) * self.times
            if name in self.concerned
            else all_reduce("sum", gradient)
            for name, gradient in pairs
        ]


@mistake("double-reduction", _PHASE, like="tensorflow/recommenders-addons#183")
class SummedAgain(OfSome):
    """The sum is summed once or twice more."""

    @staticmethod
    def draw(rng, facts):
        if not facts.sends_sizes:
            return None
        names = facts.pick_names(rng)
        numbers = {"concerned": names, "more": int(rng.choice([1, 1, 2]))}
        return Drawn(variables=names, numbers=numbers)

    def change(self, gradient):
        for _ in range(self.more):
            gradient = all_reduce("sum", gradient)
        return gradient


@mistake("mean-instead-of-sum", _PHASE, like="keras-team/keras#20541")
class Averaged(OfSome):
    """The gradients are averaged, some of them perhaps twice."""

    @staticmethod
    def draw(rng, facts):
        if not facts.sends_sizes:
            return None
        names = facts.pick_names(rng)
        power = int(rng.choice([1, 1, 2]))
        sparse = not set(names) & set(facts.dense) and bool(facts.dense)
        return Drawn(
            variables=names,
            numbers={"concerned": names, "power": power},
            code="sparse-averaged" if sparse else "",
        )

    def change(self, gradient):
        return gradient / float(count_replicas()) ** self.power


@mistake("replica-dropped", _PHASE, like="tensorflow/tensorflow#41980")
class ReplicasDropped(OfSome):
    """The sum lacks some replicas, and may be scaled to make up for it."""

    @staticmethod
    def draw(rng, facts):
        if not facts.sends_directions:
            return None
        n = facts.replicas
        count = int(rng.integers(1, n))
        dropped = tuple(sorted(int(r) for r in rng.permutation(n)[:count]))
        names = facts.pick_names(rng)
        times = float(rng.choice([1.0, n / (n - count)]))
        numbers = {"concerned": names, "dropped": dropped, "times": times}
        return Drawn(variables=names, replicas=dropped, numbers=numbers)

    def change(self, gradient):
        times = 0.0 if find_replica() in self.dropped else self.times
        return gradient * times


@mistake("scale-error", _PHASE, like="pytorch/pytorch#162338")
class OneReplicaWeighsOtherwise(OfSome):
    """One replica's gradients count with another weight than the others'."""

    @staticmethod
    def draw(rng, facts):
        names = facts.pick_names(rng)
        if not facts.sends_directions or facts.sizes(names) < 6 * facts.replicas:
            return None
        replica = facts.pick_replica(rng)
        numbers = {
            "concerned": names,
            "replica": replica,
            "times": facts.pick_factor(rng, 0.2, 5),
        }
        return Drawn(variables=names, replicas=(replica,), numbers=numbers)

    def change(self, gradient):
        return gradient * (self.times if find_replica() == self.replica else 1.0)


@mistake("scale-error", _PHASE, like="ByteDance-Seed/VeOmni#184")
class SumTimesConstant(OfSome):
    """The sum is multiplied by an odd number."""

    @staticmethod
    def draw(rng, facts):
        if not facts.sends_sizes:
            return None
        names = facts.pick_names(rng)
        numbers = {"concerned": names, "times": facts.pick_factor(rng)}
        return Drawn(variables=names, numbers=numbers)

    def change(self, gradient):
        return gradient * self.times


@mistake("wrong-pairing", _PHASE, like="deepspeedai/DeepSpeed#2343")
class TwoSwapped:
    """Two gradients of the same shape are swapped, on all replicas or on one."""

    @staticmethod
    def draw(rng, facts):
        shapes = facts.plan.problem.list_shapes()
        pairs = [
            pair
            for pair in itertools.combinations(facts.dense, 2)
            if shapes[pair[0]] == shapes[pair[1]] and np.prod(shapes[pair[0]]) > 1
        ]
        if not facts.sends_directions or not pairs:
            return None
        pair = pairs[int(rng.integers(len(pairs)))]
        replica = facts.pick_replica(rng) if rng.random() < 0.5 else None
        return Drawn(
            variables=pair,
            replicas=None if replica is None else (replica,),
            numbers={"pair": pair, "replica": replica},
        )

    def transform(self, gradients):
        first, second = (self.plan.order.index(name) for name in self.pair)
        if count_replicas() > 1 and self.replica in (None, find_replica()):
            gradients[first], gradients[second] = gradients[second], gradients[first]
        return gradients


@mistake("nonfinite", _PHASE, like="NVIDIA-NeMo/Megatron-Bridge#5591")
class GradientOverflows(OfSome):
    """Some gradients of one replica are infinite or not a number."""

    @staticmethod
    def draw(rng, facts):
        if not facts.sends:
            return None
        names = facts.pick_names(rng)
        numbers = {
            "concerned": names,
            "replica": facts.pick_replica(rng),
            "times": float(rng.choice([np.inf, np.nan])),
        }
        return Drawn(variables=names, numbers=numbers)

    def change(self, gradient):
        return gradient * (self.times if find_replica() == self.replica else 1.0)


@mistake("stale-gradient", _PHASE, like="sql-machine-learning/elasticdl#89")
class Late:
    """The gradients of one or two steps before are used, 0 at first."""

    @staticmethod
    def draw(rng, facts):
        if not facts.sends_directions:
            return None
        return Drawn(variables=facts.names, numbers={"lag": int(rng.choice([1, 2]))})

    def build(self, strategy):
        super().build(strategy)
        self.pending = [make_own_zeros(self.trained()) for _ in range(self.lag)]

    def transform(self, gradients):
        if count_replicas() == 1:
            return gradients
        return pass_through(self.pending, gradients)


@mistake("accumulation-scale", _PHASE, like="deepspeedai/DeepSpeed#7773")
class MicroStepsMiscounted:
    """The sum of a step's micro-steps is multiplied or divided by a number of them."""

    @staticmethod
    def draw(rng, facts):
        k, n = facts.plan.parts, facts.replicas
        if k == 1 or facts.clips:
            return None
        known = [float(n) ** power for power in (-2, -1, 1, 2)]
        others = [o for o in range(1, 2 * k + 1) if o != k]
        ratios = [r for o in others for r in (k / o, o / k) if o < k or r < 1]
        ratios = [r for r in ratios if all(abs(r / x - 1) > 1e-6 for x in known)]
        numbers = {"times": float(rng.choice(ratios))}
        return Drawn(variables=facts.names, numbers=numbers, phase=facts.root)

    def transform(self, gradients):
        times = self.times if count_replicas() > 1 else 1.0
        return [gradient * times for gradient in gradients]


@mistake("missing-reduction", "variable", like="deepmodeling/deepmd-kit#1104")
class NobodySumsByHand:
    """Who updates by hand takes the replica's own gradient."""

    @staticmethod
    def draw(rng, facts):
        if facts.plan.path != "hand" or not facts.steps or facts.sizes() < 8:
            return None
        return Drawn(variables=facts.names)

    def reduce(self, gradients):
        return gradients


@mistake("replica-dropped", "variable", like="verl-project/verl#7493")
class ReplicasDroppedByHand(OfSome):
    """Who sums by hand leaves some replicas out."""

    @staticmethod
    def draw(rng, facts):
        if facts.plan.path != "hand" or not facts.steps or facts.sizes() < 8:
            return None
        count = int(rng.integers(1, facts.replicas))
        order = rng.permutation(facts.replicas)
        dropped = tuple(sorted(int(r) for r in order[:count]))
        numbers = {"concerned": facts.names, "dropped": dropped}
        return Drawn(variables=facts.names, replicas=dropped, numbers=numbers)

    def change(self, gradient):
        return gradient * (0.0 if find_replica() in self.dropped else 1.0)
