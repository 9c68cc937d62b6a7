"""Mistakes in an optimizer's slots and numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from distbench.faults.generated.mistake import Drawn, mistake
from distbench.samples.drawn.problem import measure_rms
from distbench.samples.lazy import tf
from distbench.samples.replicas import all_reduce, count_replicas, find_copy, update

_SLOTS = {"OwnMomentum": ("m",), "OwnSquares": ("a",), "OwnMoments": ("m", "v")}
_STOCK_SLOTS = {
    "Adam": ("m", "v"),
    "Adagrad": ("accumulator",),
    "RMSprop": ("rms",),
    "Adadelta": ("accum_grad", "accum_var"),
    "Adamax": ("m", "v"),
    "Nadam": ("m", "v"),
    "Ftrl": ("accumulator", "linear"),
}


def _pick_slots(rng, facts):
    """Some of the slots that the rule has."""
    slots = _SLOTS[facts.plan.rule.kind]
    count = int(rng.integers(1, len(slots) + 1))
    return tuple(str(slot) for slot in rng.permutation(slots)[:count])


def _name(facts, slots):
    """Paths of slots, of all variables."""
    rule = facts.plan.rule
    return tuple(f"{rule.name}/{v}/{slot}" for slot in slots for v in facts.names)


def _draw_slots(rng, facts, **numbers):
    if not facts.owns_slots:
        return None
    slots = _pick_slots(rng, facts)
    return Drawn(variables=_name(facts, slots), numbers={"wrong": slots, **numbers})


@mistake("slot-from-local-gradient", "slot", like="keras-team/keras#20541")
class FedWithOwnGradient:
    """Slots take the replica's own gradient, or that of one replica."""

    @staticmethod
    def draw(rng, facts):
        sums = facts.plan.path in ("optimizer", "override")
        drawn = _draw_slots(rng, facts) if sums else None
        if drawn is None or facts.sizes() < 8:
            return None
        kinds = ["own", "own", "times N", "one"]
        if set(drawn.numbers["wrong"]) <= {"a", "v"}:
            kinds += ["sum of squares", "mean of squares"]
        numbers = {"kind": str(rng.choice(kinds)), "source": facts.pick_replica(rng)}
        return replace(drawn, numbers={**drawn.numbers, **numbers})

    class Rule:
        """Slots change in apply_gradients, before the optimizer sums."""

        def apply_gradients(self, grads_and_vars, name=None, **kwargs):
            pairs = list(grads_and_vars)
            if count_replicas() > 1:
                with tf.name_scope(self._name), tf.init_scope():
                    self._create_all_weights([variable for _, variable in pairs])
                for gradient, variable in pairs:
                    for slot in self.wrong:
                        self.feed_early(slot, tf.convert_to_tensor(gradient), variable)
            return super().apply_gradients(pairs, name, **kwargs)

        def feed_early(self, name, gradient, variable):
            slot = self.get_slot(variable, name)
            source = self.find_source(gradient)
            update(slot, lambda copy, g: self.feed(name, copy, g), source)

        def find_source(self, gradient):
            if self.kind == "times N":
                return gradient * count_replicas()
            if self.kind == "one":
                context = tf.distribute.get_replica_context()
                number = tf.get_static_value(context.replica_id_in_sync_group)
                mine = 1.0 if number == self.source else 0.0
                return all_reduce("sum", gradient * mine)
            if self.kind == "sum of squares":
                return tf.sqrt(all_reduce("sum", gradient**2))
            if self.kind == "mean of squares":
                return tf.sqrt(all_reduce("mean", gradient**2))
            return gradient

        def change_slot(self, name, slot, grad, var):
            if count_replicas() == 1 or name not in self.wrong:
                super().change_slot(name, slot, grad, var)


@mistake("slot-not-synchronized", "slot", like="OpenNMT/OpenNMT-tf#705")
class SlotOfOneCopyStands:
    """The slots of one replica are not updated."""

    @staticmethod
    def draw(rng, facts):
        copy = facts.pick_replica(rng)
        drawn = _draw_slots(rng, facts, copy=copy)
        return None if drawn is None else replace(drawn, replicas=(copy,))

    class Rule:
        """Leaves one copy out."""

        def change_slot(self, name, slot, grad, var):
            stands = count_replicas() > 1 and find_copy(var) == self.copy
            if not stands or name not in self.wrong:
                super().change_slot(name, slot, grad, var)


@mistake("slot-not-synchronized", "slot", like="OpenNMT/OpenNMT-tf#705")
class StockSlotStands:
    """A slot of a stock optimizer is put back on one replica after the update."""

    @staticmethod
    def draw(rng, facts):
        rule = facts.plan.rule
        slots = _STOCK_SLOTS.get(rule.kind, ())
        if rule.options.get("momentum") and rule.kind == "SGD":
            slots = ("momentum",)
        if not slots or facts.plan.path == "two":
            return None
        slot, copy = str(rng.choice(slots)), facts.pick_replica(rng)
        return Drawn(
            variables=_name(facts, (slot,)),
            replicas=(copy,),
            numbers={"slot": slot, "copy": copy},
        )

    class Rule:
        """Remembers what the slot was."""

        def _resource_apply_dense(self, grad, var, apply_state=None):
            before = tf.identity(self.get_slot(var, self.slot))
            done = super()._resource_apply_dense(grad, var, apply_state)
            return self.put_back(var, before, done)

        def _resource_apply_sparse(self, grad, var, indices, apply_state=None):
            before = tf.identity(self.get_slot(var, self.slot))
            done = super()._resource_apply_sparse(grad, var, indices, apply_state)
            return self.put_back(var, before, done)

        def put_back(self, var, before, done):
            if count_replicas() > 1 and find_copy(var) == self.copy:
                return self.get_slot(var, self.slot).assign(before)
            return done


@mistake("slot-not-synchronized", "slot", like="NVIDIA/Megatron-LM#1446")
class SlotOfOneCopyDrifts:
    """The slots of one replica are rounded at random."""

    @staticmethod
    def draw(rng, facts):
        copy = facts.pick_replica(rng)
        drawn = _draw_slots(rng, facts, copy=copy)
        return None if drawn is None else replace(drawn, replicas=(copy,))

    class Rule:
        """Adds noise to one copy."""

        def change_slot(self, name, slot, grad, var):
            super().change_slot(name, slot, grad, var)
            drifts = count_replicas() > 1 and find_copy(var) == self.copy
            if drifts and name in self.wrong:
                shape, dtype = slot.shape, slot.dtype
                noise = tf.random.stateless_uniform(shape, [3, 4], 0.001, 0.01, dtype)
                slot.assign_add(noise * (tf.abs(slot) + tf.abs(grad)))


@mistake("slot-repeated", "slot", like="horovod/horovod#2715")
class SlotFedAgain:
    """Slots take the gradient once for each replica."""

    @staticmethod
    def draw(rng, facts):
        return _draw_slots(rng, facts) if facts.steps else None

    class Rule:
        """Repeats the change of a slot."""

        def change_slot(self, name, slot, grad, var):
            times = count_replicas() if name in self.wrong else 1
            for _ in range(times):
                super().change_slot(name, slot, grad, var)


@mistake("scale-error", "slot", like="deepspeedai/DeepSpeed#2695")
class SlotFedWithMultiple:
    """Slots take an odd multiple of the gradient."""

    @staticmethod
    def draw(rng, facts):
        times = facts.pick_factor(rng, 0.3, 4)
        whole = abs(times**2 - round(times**2)) < 0.05  # so many squares added up
        return None if whole else _draw_slots(rng, facts, times=times)

    class Rule:
        """Multiplies the gradient."""

        def change_slot(self, name, slot, grad, var):
            wrong = count_replicas() > 1 and name in self.wrong
            times = self.times if wrong else 1.0
            super().change_slot(name, slot, grad * times, var)


@mistake("hyperparameter-differs", "slot", like="keras-team/keras#19990")
class MemoryRaised:
    """A slot forgets as much as in N steps, and takes one gradient."""

    @staticmethod
    def draw(rng, facts):
        if not facts.owns_slots or "beta" not in facts.plan.rule.options:
            return None
        return Drawn(variables=_name(facts, ("m",)))

    class Rule:
        """Another beta in the change of a slot."""

        def change_slot(self, name, slot, grad, var):
            if name == "m":
                # With the gradient's weight changed too it would be N updates.
                more = count_replicas() - 1
                slot.assign(self.find_memory(name) ** more * slot)
            super().change_slot(name, slot, grad, var)


@mistake("slot-initial", "slot", like="keras-team/keras#20541")
class SlotStartsOtherwise:
    """Slots start from N times their first value, or from another than 0."""

    @staticmethod
    def draw(rng, facts):
        size = min(measure_rms(facts.total(name)) for name in facts.names)
        return _draw_slots(rng, facts, more=float(f"{size:.2g}"))

    class Rule:
        """Another first value."""

        def find_start(self, slot):
            start = super().find_start(slot)
            if count_replicas() == 1 or slot not in self.wrong:
                return start
            return start * count_replicas() if start else self.more


@mistake("slot-initial", "slot", like="keras-team/keras#20695")
class AccumulatorStartsOtherwise:
    """An accumulator starts from N times its first value."""

    @staticmethod
    def draw(rng, facts):
        rule = facts.plan.rule
        if rule.kind not in ("Adagrad", "Ftrl") or facts.plan.path == "two":
            return None
        return Drawn(variables=_name(facts, ("accumulator",)))

    def make_one(self, rule):
        name = "initial_accumulator_value"
        start = rule.options[name] * count_replicas()
        return super().make_one(replace(rule, options={**rule.options, name: start}))


@mistake("hyperparameter-differs", "slot", like="sql-machine-learning/elasticdl#89")
class NumberTimesReplicas:
    """A number of the optimizer is scaled with the number of replicas."""

    @staticmethod
    def draw(rng, facts):
        rule = facts.plan.rule
        if rule.own or facts.plan.path in ("two", "hand"):
            return None
        known = ("momentum", "beta_1", "beta_2", "rho")
        names = [name for name in known if name in rule.options]
        if not rule.schedule:
            names += ["learning_rate"] * 2
        if not names:
            return None
        number = str(rng.choice(names))
        path = f"{rule.name}/{number}"
        return Drawn(variables=(path,), numbers={"number": number})

    def make_one(self, rule):
        n = count_replicas()
        if self.number == "learning_rate":
            return super().make_one(replace(rule, rate=rule.rate * n))
        value = rule.options[self.number] ** n
        options = {**rule.options, self.number: value}
        return super().make_one(replace(rule, options=options))


@mistake("statistics-not-synchronized", "variable", like="tensorflow/tensorflow#60438")
class StatisticOfOwnExamples:
    """The moving mean is that of one replica's examples, or a mean of means."""

    @staticmethod
    def draw(rng, facts):
        if not facts.plan.statistic:
            return None
        kinds = ["ONLY_FIRST_REPLICA", "MEAN"]
        numbers = {"kind": str(rng.choice(kinds))}
        return Drawn(variables=("moving/mean",), numbers=numbers)

    def find_aggregation(self):
        return getattr(tf.VariableAggregation, self.kind)

    def keep_statistic(self, features):
        self.moving.assign(0.9 * self.moving + 0.1 * tf.reduce_mean(features, axis=0))


@mistake("initial-value-differs", "variable", like="keras-team/keras#18972")
class ValueScaledByReplicas:
    """Initial values are scaled with the number of replicas."""

    @staticmethod
    def draw(rng, facts):
        names = facts.pick_names(rng)
        return Drawn(variables=names, numbers={"scaled": names})

    def build(self, strategy):
        super().build(strategy)
        for name in self.scaled:
            self.model[name].assign(self.model[name] * count_replicas())


@mistake("initial-value-differs", "variable", like="horovod/horovod#895")
class CopyDrawsItsOwn:
    """One replica draws initial values of its own."""

    @staticmethod
    def draw(rng, facts):
        names = facts.pick_names(rng)
        copy = facts.pick_replica(rng)
        numbers = {"drawn": names, "copy": copy}
        return Drawn(variables=names, replicas=(copy,), numbers=numbers)

    def build(self, strategy):
        super().build(strategy)
        rng = np.random.default_rng(self.copy)
        for name in self.drawn:
            variable = self.model[name]
            values = 1.5 + rng.random(variable.shape)
            for copy in getattr(variable, "values", [variable]):
                if count_replicas() > 1 and find_copy(copy) == self.copy:
                    copy.assign(copy * values.astype(self.dtype))
