"""Mistakes in the update of the variables and in counting the steps."""

from __future__ import annotations

from dataclasses import replace

from distbench.faults.generated.mistake import Drawn, mistake
from distbench.samples.drawn.problem import measure_rms
from distbench.samples.lazy import tf
from distbench.samples.replicas import count_replicas, find_copy

_REPEATABLE = ("SGD", "Adam", "OwnMomentum", "OwnSquares", "OwnMoments")
_PHASE = "variable"


def _owns_rule(facts):
    return facts.owns_slots and facts.steps


@mistake("update-repeated", _PHASE, like="tensorflow/recommenders-addons#183")
class RuleAppliedAgain:
    """The whole update is applied once for each replica."""

    @staticmethod
    def draw(rng, facts):
        rules = facts.plan.rules
        fits = all(
            rule.kind in _REPEATABLE and "amsgrad" not in rule.options for rule in rules
        )
        if not fits or not facts.steps or facts.clips:
            return None
        kind = str(rng.choice(["all", "sparse", "dense"]))
        sparse = tuple(name for name in facts.names if name not in facts.dense)
        names = {"all": facts.names, "sparse": sparse, "dense": facts.dense}[kind]
        if not names or (kind != "all" and (rules[0].own or facts.plan.parts > 1)):
            return Drawn(variables=facts.names, numbers={"where": "all"})
        if facts.plan.path == "hand":
            return Drawn(variables=facts.names, numbers={"where": "all"})
        return Drawn(variables=names, numbers={"where": kind})

    def update(self, variable, gradient):
        for _ in range(count_replicas()):
            super().update(variable, gradient)

    class Rule:
        """Repeats what is done to a copy."""

        def _resource_apply_dense(self, grad, var, apply_state=None):
            times = 1 if self.where == "sparse" else count_replicas()
            for _ in range(times):
                done = super()._resource_apply_dense(grad, var, apply_state)
            return done

        def _resource_apply_sparse(self, grad, var, indices, apply_state=None):
            # A rule that makes its rows dense comes by the other method.
            once = hasattr(self, "find_slot") or self.where == "dense"
            times = 1 if once else count_replicas()
            for _ in range(times):
                done = super()._resource_apply_sparse(grad, var, indices, apply_state)
            return done


@mistake("update-repeated", _PHASE, like="sql-machine-learning/elasticdl#89")
class StepTakenAgain:
    """The variable moves once for each replica, the slots once."""

    @staticmethod
    def draw(rng, facts):
        # Steps that decay a variable are as long as one of an odd rate, and only where
        # the rule is linear does the step tell its decay.
        rule = facts.plan.rule
        told = rule.kind == "OwnMomentum" or not rule.options.get("decay")
        return Drawn(variables=facts.names) if _owns_rule(facts) and told else None

    class Rule:
        """Repeats the step."""

        def change_variable(self, var, grad):
            for _ in range(count_replicas()):
                done = super().change_variable(var, grad)
            return done


@mistake("hyperparameter-differs", _PHASE, like="sql-machine-learning/elasticdl#89")
class RateTimesConstant:
    """The step is longer or shorter by an odd factor."""

    @staticmethod
    def draw(rng, facts):
        rule = facts.plan.rule
        own = _owns_rule(facts)
        fixed = ("Adam", "Adagrad", "RMSprop", "Adamax", "Nadam")
        stock = rule.schedule and (rule.kind in fixed or rule.kind == "SGD")
        # A momentum of the stock rules holds the rate: there it shows in the slot.
        stock = stock and "momentum" not in rule.options and facts.steps
        if not own and not stock:
            return None
        times = facts.pick_factor(rng, 0.2, 5)
        return Drawn(variables=facts.names, numbers={"times": times})

    def make_one(self, rule):
        times = self.times if count_replicas() > 1 else 1.0
        return super().make_one(replace(rule, rate=rule.rate * times))


def _decays(facts):
    """Whether the decay shows beside rounding, and is small beside the step."""
    if not _owns_rule(facts):
        return False
    rule = facts.plan.rule
    decay = float(rule.options.get("decay", 0.0)) * rule.rate
    if not 1e-4 < decay < 0.1:
        return False
    values = facts.plan.problem.draw_values()
    return all(
        decay * measure_rms(values[name]) > 1e-3 * facts.estimate_step(name)
        for name in facts.names
    )


@mistake("weight-decay-repeated", _PHASE, like="tensorflow/addons#2683")
class DecayTimesReplicas:
    """The weight decay is applied once for each replica."""

    @staticmethod
    def draw(rng, facts):
        fits = _decays(facts) and facts.sizes() >= 12
        return Drawn(variables=facts.names) if fits else None

    class Rule:
        """Scales the decay."""

        def change_variable(self, var, grad):
            decay = self.decay * count_replicas()
            step = self.find_direction(var, grad) + decay * var
            return var.assign_sub(self.rate * step)


@mistake("weight-decay-missing", _PHASE, like="tensorflow/tensorflow#25066")
class DecayLeftOut:
    """On a cluster there is no weight decay, on all replicas or on one."""

    @staticmethod
    def draw(rng, facts):
        if not _decays(facts) or facts.sizes() < 12:
            return None
        copy = facts.pick_replica(rng) if rng.random() < 0.5 else None
        return Drawn(
            variables=facts.names,
            replicas=None if copy is None else (copy,),
            numbers={"copy": copy},
        )

    class Rule:
        """Drops the decay."""

        def change_variable(self, var, grad):
            if count_replicas() == 1 or self.copy not in (None, find_copy(var)):
                return super().change_variable(var, grad)
            return var.assign_sub(self.rate * self.find_direction(var, grad))


@mistake("momentum-repeated", _PHASE, like="tensorflow/addons#2351")
class MomentumAddedAgain:
    """The step looks ahead along a momentum that it holds already."""

    @staticmethod
    def draw(rng, facts):
        fits = _owns_rule(facts) and facts.plan.rule.kind == "OwnMomentum"
        if not fits or facts.sizes() < 8:
            return None
        numbers = {"ahead": float(f"{rng.uniform(0.3, 1.5):.3g}")}
        return Drawn(variables=facts.names, numbers=numbers)

    class Rule:
        """Adds what the slot was before."""

        def _resource_apply_dense(self, grad, var, apply_state=None):
            before = tf.identity(self.find_slot(var, "m"))
            done = super()._resource_apply_dense(grad, var, apply_state)
            if count_replicas() == 1:
                return done
            return var.assign_sub(self.rate * self.ahead * before)


@mistake("iterations-wrong", "iterations", like="larq/larq#629")
class StepsMiscounted:
    """The counter of steps advances once for each replica, or not at all."""

    @staticmethod
    def draw(rng, facts):
        if facts.plan.path in ("two", "hand"):
            return None
        more = int(rng.choice([facts.replicas - 1, -1]))
        name = f"{facts.plan.rule.name}/iter"
        return Drawn(variables=(name,), numbers={"more": more})

    class Rule:
        """Moves the counter on."""

        def apply_gradients(self, grads_and_vars, name=None, **kwargs):
            done = super().apply_gradients(grads_and_vars, name, **kwargs)
            if count_replicas() > 1:
                self.iterations.assign_add(self.more)
            return done


class AfterUpdate:
    """Does something to a copy of a variable after its update."""

    def descend(self, copy, gradient):
        before = tf.identity(copy)
        super().descend(copy, gradient)
        if count_replicas() > 1 and find_copy(copy) == self.copy:
            self.spoil(copy, before)

    class Rule:
        """Both ways of updating a copy."""

        def _resource_apply_dense(self, grad, var, apply_state=None):
            before = tf.identity(var)
            done = super()._resource_apply_dense(grad, var, apply_state)
            return self.follow(var, before, done)

        def _resource_apply_sparse(self, grad, var, indices, apply_state=None):
            before = tf.identity(var)
            done = super()._resource_apply_sparse(grad, var, indices, apply_state)
            # A rule that makes its rows dense has come by the other method.
            return (
                done if hasattr(self, "find_slot") else self.follow(var, before, done)
            )

        def follow(self, var, before, done):
            if count_replicas() > 1 and find_copy(var) == self.copy:
                return self.spoil(var, before)
            return done


def _draw_copy(rng, facts, **numbers):
    copy = facts.pick_replica(rng)
    return Drawn(
        variables=facts.names, replicas=(copy,), numbers={"copy": copy, **numbers}
    )


@mistake("replicas-diverged", _PHASE, like="deepmodeling/deepmd-kit#1104")
class CopyStands(AfterUpdate):
    """One replica's copies keep their values."""

    @staticmethod
    def draw(rng, facts):
        return _draw_copy(rng, facts) if facts.steps else None

    def spoil(self, copy, before):
        return copy.assign(before)

    class Rule(AfterUpdate.Rule):
        """Puts the value back."""

        def spoil(self, copy, before):
            return copy.assign(before)


def _add_noise(copy, before, size):
    noise = tf.random.stateless_uniform(copy.shape, [5, 7], 0.5, 1.5, copy.dtype)
    return copy.assign_add(size * noise * (tf.abs(before) + tf.abs(copy)))


@mistake("replicas-diverged", _PHASE, like="tensorflow/tensorflow#58433")
class CopyDrifts(AfterUpdate):
    """Noise is added to one replica's copies."""

    @staticmethod
    def draw(rng, facts):
        size = float(f"{10 ** rng.uniform(-4, -1):.2g}")
        return _draw_copy(rng, facts, size=size)

    def spoil(self, copy, before):
        return _add_noise(copy, before, self.size)

    class Rule(AfterUpdate.Rule):
        """Adds the noise."""

        def spoil(self, copy, before):
            return _add_noise(copy, before, self.size)
