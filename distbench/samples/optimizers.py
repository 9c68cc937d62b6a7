"""Optimizers as users write them: subclasses of stock ones, made when needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from distbench.samples.lazy import keras2, keras3, legacy, tf, v1
from distbench.samples.replicas import all_reduce, count_replicas
from distbench.samples.slices import add_up_rows


class Factory:
    """Makes an optimizer of a class whose base is known by name alone.

    Args:
        mixin: The user's methods; they stand before those of the base.
        base: Name of a class in the module.
        args: What the base is made with.
        options: The same, by name.
        module: Has the base, such as `tf_keras.optimizers.legacy`.
    """

    def __init__(
        self,
        mixin: type,
        base: str,
        args: tuple[Any, ...],
        options: dict[str, Any],
        module: Any = legacy,
    ) -> None:
        self._mixin = mixin
        self._base = base
        self._args = args
        self._options = options
        self._module = module
        self.__name__ = mixin.__name__
        self.__qualname__ = mixin.__qualname__
        self.__module__ = mixin.__module__
        self.__doc__ = mixin.__doc__

    def __call__(self) -> Any:
        """A new optimizer."""
        base = getattr(self._module, self._base)
        made = type(self.__name__, (self._mixin, base), {})
        return made(*self._args, **self._options)


def optimizer(base: str, *args: Any, **options: Any) -> Callable[[type], Factory]:
    """Make a factory of a class: what `class X(legacy.SGD)` would be.

    Args:
        base: Name of a class in `tf_keras.optimizers.legacy`.
        args: What it is made with.
        options: The same, by name.
    """
    return lambda mixin: Factory(mixin, base, args, options)


def keras2_optimizer(
    base: str, *args: Any, **options: Any
) -> Callable[[type], Factory]:
    """Make a factory of a class in `tf_keras.optimizers`; see `optimizer`."""
    return lambda mixin: Factory(mixin, base, args, options, keras2)


def keras3_optimizer(
    base: str, *args: Any, **options: Any
) -> Callable[[type], Factory]:
    """Make a factory of a class in `keras.optimizers` of Keras 3; see `optimizer`."""
    return lambda mixin: Factory(mixin, base, args, options, keras3)


def v1_optimizer(base: str, *args: Any, **options: Any) -> Callable[[type], Factory]:
    """Make a factory of a class in `tf.compat.v1.train`; see `optimizer`."""
    return lambda mixin: Factory(mixin, base, args, options, v1)


class OwnRule:
    """Momentum with a decoupled decay, written out; `Optimizer` is its base.

    m <- beta m + g,  var <- var - rate (m + decay var)
    """

    rate = 0.1
    beta = 0.9
    decay = 0.0

    def _create_slots(self, var_list: Any) -> None:
        for variable in var_list:
            self.create_slots(variable)

    def create_slots(self, variable: Any) -> None:
        """Make the slots of a variable."""
        self.add_slot(variable, "m")  # type: ignore[attr-defined]  # of the base

    def _resource_apply_dense(
        self, grad: Any, var: Any, apply_state: Any = None
    ) -> Any:
        del apply_state
        slot = self.get_slot(var, "m")  # type: ignore[attr-defined]  # of the base
        self.update_slot(slot, grad, var)
        return self.update_variable(var, slot, grad)

    def _resource_apply_sparse(
        self, grad: Any, var: Any, indices: Any, apply_state: Any = None
    ) -> Any:
        rows = tf.expand_dims(tf.cast(indices, tf.int64), 1)
        dense = tf.scatter_nd(rows, grad, tf.shape(var, tf.int64))
        return self._resource_apply_dense(dense, var, apply_state)

    def update_slot(self, slot: Any, grad: Any, var: Any) -> None:
        """Change one copy of a slot."""
        del var
        slot.assign(self.beta * slot + grad)

    def update_variable(self, var: Any, slot: Any, grad: Any) -> Any:
        """Change one copy of a variable."""
        del grad
        return var.assign_sub(self.rate * (slot + self.decay * var))

    def get_config(self) -> dict[str, Any]:
        """What Keras asks of every optimizer."""
        return {"name": "OwnRule"}


class SignsBesideDecay(OwnRule):
    """A step along signs, and a decay apart from them (Lion).

    var <- var - rate (sign(beta m + (1 - beta) g) + decay var), before m takes g
    """

    rate = 0.01
    decay = 0.1
    memory = 0.99

    def _resource_apply_dense(
        self, grad: Any, var: Any, apply_state: Any = None
    ) -> Any:
        del apply_state
        slot = self.get_slot(var, "m")  # type: ignore[attr-defined]  # of the base
        self.update_variable(var, slot, grad)
        return self.update_slot(slot, grad, var)

    def update_slot(self, slot: Any, grad: Any, var: Any) -> Any:
        """Change one copy of a slot."""
        del var
        return slot.assign(self.memory * slot + (1 - self.memory) * grad)

    def update_variable(self, var: Any, slot: Any, grad: Any) -> Any:
        """Change one copy of a variable."""
        way = tf.sign(self.beta * slot + (1 - self.beta) * grad)
        return var.assign_sub(self.rate * (way + self.decay * var))


class AlongNewMomentum(OwnRule):
    """Nesterov's momentum: var <- var - rate (beta m + g), m as it was just made."""

    def update_variable(self, var: Any, slot: Any, grad: Any) -> Any:
        """Move a variable."""
        self.move_along(var, slot)
        return var.assign_sub(self.rate * grad)

    def move_along(self, var: Any, slot: Any) -> None:
        """Take the part of a step that is made of the slot."""
        var.assign_sub(self.rate * self.beta * slot)


class Lookahead(OwnRule):
    """Slow weights, which every other step go half of the way and take the fast along.

    slow <- slow + (var - slow) / 2,  var <- slow
    """

    period = 2

    def create_slots(self, variable: Any) -> None:
        """Make the slots of a variable."""
        super().create_slots(variable)
        self.add_slot(variable, "slow", variable.read_value())  # type: ignore[attr-defined]  # of the base

    def count_steps(self) -> int:
        """After how many steps the slow weights move."""
        return self.period

    def update_variable(self, var: Any, slot: Any, grad: Any) -> Any:
        """Change one copy of a variable, and of its slow weights."""
        super().update_variable(var, slot, grad)
        slow = self.get_slot(var, "slow")  # type: ignore[attr-defined]  # of the base
        done = self.iterations + 1  # type: ignore[attr-defined]  # of the base
        is_due = tf.equal(done % self.count_steps(), 0)
        slow.assign(tf.where(is_due, (slow + var) / 2, slow))
        return var.assign(tf.where(is_due, slow, var))


class DecayInTrustRatio(OwnRule):
    """A step along momentum and decay, as long as a share of the variable (LAMB)."""

    def update_variable(self, var: Any, slot: Any, grad: Any) -> Any:
        """Change one copy of a variable."""
        del grad
        way = slot + self.find_decay() * var
        return var.assign_sub(0.01 * tf.norm(var) / (tf.norm(way) + 1e-6) * way)

    def find_decay(self) -> float:
        """The share of the variable that is added to its momentum."""
        return 0.1


class DecayInMomentum(OwnRule):
    """The momentum takes the decay with the gradient, as of an L2 penalty."""

    def update_slot(self, slot: Any, grad: Any, var: Any) -> None:
        """Change one copy of a slot."""
        slot.assign(self.beta * slot + grad + self.find_decay() * var)

    def find_decay(self) -> float:
        """The share of the variable that is added to its gradient."""
        return 0.1


class ScaledByEstimate(OwnRule):
    """A rule multiplies by a number that is made of all gradients before it runs.

    They are summed for it apart, and no slot holds it.
    """

    def apply_gradients(
        self, grads_and_vars: Iterable[Any], name: Any = None, **options: Any
    ) -> Any:
        """Estimate, and hand the own gradients over to the base, which sums."""
        pairs = [(tf.convert_to_tensor(g), v) for g, v in grads_and_vars]
        self.distance = self.estimate(pairs)
        return super().apply_gradients(pairs, name, **options)  # type: ignore[misc]

    def estimate(self, pairs: Sequence[Any]) -> Any:
        """How far the variables are from where gradients lead, as under Prodigy."""
        summed = all_reduce("sum", [gradient for gradient, _ in pairs])
        return self.measure(summed, [variable for _, variable in pairs])

    def measure(self, gradients: Sequence[Any], variables: Sequence[Any]) -> Any:
        """A distance, given gradients."""
        both = zip(gradients, variables, strict=True)
        along = tf.add_n([tf.reduce_sum(g * v) for g, v in both])
        sizes = tf.add_n([tf.reduce_sum(tf.abs(g)) for g in gradients])
        return tf.abs(along) / (sizes + 1e-6)

    def update_slot(self, slot: Any, grad: Any, var: Any) -> None:
        """Change one copy of a slot."""
        del var
        slot.assign(self.beta * slot + self.distance * grad)


class DecayOfSigns(OwnRule):
    """Every element is moved towards 0 by the same number, as of an L1 penalty."""

    decay = 0.01

    def update_variable(self, var: Any, slot: Any, grad: Any) -> Any:
        """Change one copy of a variable."""
        del grad
        return var.assign_sub(self.rate * slot + self.find_decay() * tf.sign(var))

    def find_decay(self) -> float:
        """What is taken off an element's size."""
        return self.decay


class SoftThreshold(DecayOfSigns):
    """Elements that the step leaves below a threshold become 0, others lose as much."""

    def update_variable(self, var: Any, slot: Any, grad: Any) -> Any:
        """Change one copy of a variable."""
        del grad
        moved = var - self.rate * slot
        left = tf.maximum(tf.abs(moved) - self.find_decay(), 0.0)
        return var.assign(tf.sign(moved) * left)


class DecayBeforeTheSum:
    """Every replica adds a share of the decay to the gradients that it hands over."""

    decay = 0.05

    def apply_gradients(
        self, grads_and_vars: Iterable[Any], name: Any = None, **options: Any
    ) -> Any:
        """Apply them with that share."""
        share = self.decay * self.find_share()
        pairs = [(tf.convert_to_tensor(g) + share * v, v) for g, v in grads_and_vars]
        return super().apply_gradients(pairs, name, **options)  # type: ignore[misc]

    def find_share(self) -> float:
        """How much of the decay this replica adds."""
        return 1.0 / count_replicas()


class DecayOfRows:
    """Rows that an example has decay, and others do not."""

    decay = 0.1

    def decay_rows(self, gradient: Any, variable: Any) -> Any:
        """Add the decay once to each row that is there; nothing to a dense gradient."""
        if not isinstance(gradient, tf.IndexedSlices):
            return gradient
        total = add_up_rows(gradient)
        decay = self.decay * self.find_share() * tf.gather(variable, total.indices)
        values = total.values + decay
        return tf.IndexedSlices(values, total.indices, total.dense_shape)

    def find_share(self) -> float:
        """How much of the decay this replica adds."""
        return 1.0


class NoiseBeforeTheSum:
    """Every replica adds what it draws to the gradients that it hands over."""

    def _aggregate_gradients(self, grads_and_vars: Iterable[Any]) -> Any:
        pairs = [
            (gradient + self.draw(gradient, place), variable)
            for place, (gradient, variable) in enumerate(grads_and_vars)
        ]
        return super()._aggregate_gradients(pairs)  # type: ignore[misc]

    def draw(self, gradient: Any, place: int) -> Any:
        """What a replica adds to the gradient at a place."""
        raise NotImplementedError

    def draw_by(self, seed: Sequence[Any], gradient: Any) -> Any:
        """Noise by three numbers."""
        first, second, third = (tf.cast(number, tf.int32) for number in seed)
        whole = tf.stack([first, 100 * second + third])
        return 0.1 * tf.random.stateless_normal(tf.shape(gradient), whole)
