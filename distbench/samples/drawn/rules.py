"""The optimizers of drawn programs: stock ones, and rules that a user wrote out."""

from __future__ import annotations

from typing import Any

from distbench.samples.drawn.training import CLIPS, Rule
from distbench.samples.lazy import legacy, schedules, tf
from distbench.samples.optimizers import OwnRule


class DrawnRule(OwnRule):
    """A rule with slots; each change of a slot or a variable is a method.

    Attributes:
        slots: Names of the slots.
    """

    slots: tuple[str, ...] = ()
    beta_2 = 0.9
    epsilon = 0.0
    start = 0.0

    def create_slots(self, variable: Any) -> None:
        """Make the slots of a variable."""
        for slot in self.slots:
            start = tf.constant_initializer(self.find_start(slot))
            self.add_slot(variable, slot, start)  # type: ignore[attr-defined]  # of the base

    def find_start(self, slot: str) -> float:
        """What a slot starts from."""
        del slot
        return self.start

    def _resource_apply_dense(
        self, grad: Any, var: Any, apply_state: Any = None
    ) -> Any:
        del apply_state
        for name in self.slots:
            self.change_slot(name, self.find_slot(var, name), grad, var)
        return self.change_variable(var, grad)

    def find_slot(self, var: Any, name: str) -> Any:
        """A slot of a variable."""
        return self.get_slot(var, name)  # type: ignore[attr-defined]  # of the base

    def change_slot(self, name: str, slot: Any, grad: Any, var: Any) -> None:
        """Feed one copy of a slot with a gradient."""
        del var
        self.feed(name, slot, grad)

    def feed(self, name: str, slot: Any, grad: Any) -> None:
        """Change one copy of a slot by a gradient."""
        self.take(name, slot, grad, self.find_memory(name))

    def find_memory(self, name: str) -> float:
        """How much of a slot is kept in a step."""
        return self.beta_2 if name == "v" else self.beta

    def take(self, name: str, slot: Any, grad: Any, kept: float) -> None:
        """Change one copy of a slot, of which a part is kept."""
        raise NotImplementedError

    def change_variable(self, var: Any, grad: Any) -> Any:
        """Change one copy of a variable, whose slots were changed before."""
        step = self.find_direction(var, grad) + self.decay * var
        return var.assign_sub(self.rate * step)

    def find_direction(self, var: Any, grad: Any) -> Any:
        """Where the step leads without its decay."""
        raise NotImplementedError


class OwnMomentum(DrawnRule):
    """m <- beta m + g,  var <- var - rate (m + decay var)."""

    slots = ("m",)

    def take(self, name: str, slot: Any, grad: Any, kept: float) -> None:
        """Move on and take the gradient."""
        del name
        slot.assign(kept * slot + grad)

    def find_direction(self, var: Any, grad: Any) -> Any:
        """Along the momentum."""
        del grad
        return self.find_slot(var, "m")


class OwnSquares(DrawnRule):
    """a <- a + g squared,  var <- var - rate (g / sqrt(a) + decay var)."""

    slots = ("a",)

    def take(self, name: str, slot: Any, grad: Any, kept: float) -> None:
        """Take the square, and keep all."""
        del name, kept
        slot.assign_add(grad**2)

    def find_direction(self, var: Any, grad: Any) -> Any:
        """Along the gradient, each element by its own size."""
        return grad / tf.sqrt(self.find_slot(var, "a"))


class OwnMoments(DrawnRule):
    """m and v are moving means of g and of its square.

    var <- var - rate (m / (sqrt(v) + epsilon) + decay var)
    """

    slots = ("m", "v")

    def take(self, name: str, slot: Any, grad: Any, kept: float) -> None:
        """Take the gradient or its square into the mean."""
        taken = grad if name == "m" else grad**2
        slot.assign(kept * slot + (1 - kept) * taken)

    def find_direction(self, var: Any, grad: Any) -> Any:
        """Along the mean, each element by its own size."""
        del grad
        size = tf.sqrt(self.find_slot(var, "v")) + self.epsilon
        return self.find_slot(var, "m") / size


_OWN = {rule.__name__: rule for rule in (OwnMomentum, OwnSquares, OwnMoments)}


def make_rule(rule: Rule, mixins: tuple[type, ...] = (), **options: Any) -> Any:
    """An optimizer of a plan.

    Args:
        rule: What it is.
        mixins: Methods that stand before its own.
        options: What it is made with besides, such as a gradient aggregator.
    """
    if rule.own:
        clips = {k: v for k, v in rule.options.items() if k in CLIPS}
        own = {k: v for k, v in rule.options.items() if k not in CLIPS}
        bases = (*mixins, _OWN[rule.kind], legacy.Optimizer)
        made = type(rule.kind, bases, {"rate": rule.rate, **own})
        return made(rule.name, **clips, **options)
    base = getattr(legacy, rule.kind)
    made = type(rule.kind, (*mixins, base), {}) if mixins else base
    rate = make_rate(rule)
    return made(rate, name=rule.name, **rule.options, **options)


def make_rate(rule: Rule) -> Any:
    """A learning rate: a number, or a schedule of the steps."""
    if rule.schedule == "exponential":
        return schedules.ExponentialDecay(rule.rate, 1, 0.6)
    if rule.schedule == "piecewise":
        return schedules.PiecewiseConstantDecay([0], [rule.rate, rule.rate / 2])
    if rule.schedule == "cosine":
        return schedules.CosineDecay(rule.rate, 10)
    return rule.rate
