"""The train program of a plan, with the points where users go wrong as methods."""

from __future__ import annotations

from typing import Any, ClassVar

from distbench.samples.drawn.rules import make_rule
from distbench.samples.drawn.training import Plan, Rule
from distbench.samples.lazy import tf
from distbench.samples.program import Program
from distbench.samples.replicas import all_reduce, count_replicas, update

STATISTIC = "moving/mean"


class DrawnProgram(Program):
    """Trains what a plan says.

    Attributes:
        plan: The plan.
        mixins: Methods that stand before those of every optimizer.
    """

    plan: ClassVar[Plan]
    mixins: ClassVar[tuple[type, ...]] = ()

    def __init__(self) -> None:
        self.loss_reduction = self.plan.loss_reduction
        self.examples = self.plan.problem.examples
        self.dtype = self.plan.problem.dtype

    # --- making ----------------------------------------------------------------

    def build(self, strategy: Any) -> None:
        """Make variables and optimizers."""
        del strategy
        values = self.plan.problem.draw_values()
        self.model = {
            name: tf.Variable(value, name=name) for name, value in values.items()
        }
        if self.plan.statistic:
            self.moving = tf.Variable(
                tf.zeros(self.plan.problem.features, self.dtype),
                name=STATISTIC,
                trainable=False,
                aggregation=self.find_aggregation(),
            )
        self._optimizer = self.make_optimizer()

    def find_aggregation(self) -> Any:
        """How the replicas' values of the statistic combine."""
        return tf.VariableAggregation.SUM

    def make_optimizer(self) -> Any:
        """The optimizer, two, or None where the update is by hand."""
        if self.plan.path == "hand":
            return None
        if self.plan.path == "two":
            return [self.make_one(rule) for rule in self.plan.rules]
        return self.make_one(self.plan.rule)

    def make_one(self, rule: Rule) -> Any:
        """One optimizer."""
        options: dict[str, Any] = {}
        mixins = self.mixins
        if self.plan.path == "mean":
            options["gradient_aggregator"] = self.average
        if self.plan.path == "override":
            mixins = (*mixins, self.make_override())
        return make_rule(rule, mixins, **options)

    def make_override(self) -> type:
        """A subclass' own aggregation, which the program does."""
        reduce = self.reduce

        def aggregate(optimizer: Any, pairs: Any) -> Any:
            del optimizer
            pairs = list(pairs)
            sums = reduce([gradient for gradient, _ in pairs])
            return list(zip(sums, (v for _, v in pairs), strict=True))

        return type("Override", (), {"_aggregate_gradients": aggregate})

    def variables(self) -> list[Any]:
        """Everything that the model consists of."""
        moving = [self.moving] if self.plan.statistic else []
        return [*self.model.values(), *moving]

    def trained(self) -> list[Any]:
        """What has a gradient, in the order of the plan."""
        return [self.model[name] for name in self.plan.order]

    def data(self, step: int) -> Any:
        """The global batch of a step."""
        return self.plan.problem.draw_batch(step)

    # --- a step -----------------------------------------------------------------

    def replica_step(self, batch: Any) -> Any:
        """One step of one replica; returns its loss."""
        if self.plan.statistic:
            self.keep_statistic(batch["features"])
        total = self.measure_total(batch)
        if self.plan.minimised:
            return self.report(self.minimise(batch, total))
        gradients: list[Any] = []
        loss = 0.0
        for number in range(self.plan.parts):
            part = {name: a[number :: self.plan.parts] for name, a in batch.items()}
            with tf.GradientTape() as tape:
                share = self.find_loss(part, total)
            found = tape.gradient(share, self.trained())
            gradients = self.accumulate(gradients, found)
            loss += share
        self.apply(self.transform(gradients))
        return self.report(loss)

    def minimise(self, batch: Any, total: Any) -> Any:
        """The step by the optimizer's own `minimize`."""
        with tf.GradientTape() as tape:
            loss = self.find_loss(batch, total)
        self._optimizer.minimize(loss, self.trained(), tape=tape)
        return loss

    def accumulate(self, before: list[Any], found: list[Any]) -> list[Any]:
        """Add the gradients of a micro-step to those before it."""
        if self.plan.parts == 1:
            return found
        dense = [tf.convert_to_tensor(gradient) for gradient in found]
        if not before:
            return dense
        return [a + b for a, b in zip(before, dense, strict=True)]

    def keep_statistic(self, features: Any) -> None:
        """Move the mean of the features on by the replica's share of the sum."""
        part = tf.reduce_sum(features, axis=0) / self.examples
        self.moving.assign(0.9 * self.moving / count_replicas() + 0.1 * part)

    # --- the loss ---------------------------------------------------------------

    def find_loss(self, batch: Any, total: Any) -> Any:
        """What the replica differentiates."""
        losses = self.compute_losses(batch) * self.weigh(batch)
        loss = tf.reduce_sum(losses) / total
        penalty = self.compute_penalty()
        if penalty is not None:
            loss += self.share_penalty(penalty) / self.plan.parts
        if self.plan.path == "mean":
            loss *= count_replicas()
        return self.scale(loss)

    def scale(self, loss: Any) -> Any:
        """The loss is right as it is."""
        return loss

    def weigh(self, batch: Any) -> Any:
        """How much each example counts."""
        kind = self.plan.problem.normaliser
        if kind == "weights":
            return batch["weights"]
        if kind == "words":
            words = batch[f"{self.plan.problem.tables[0].name}/words"]
            return tf.cast(tf.math.count_nonzero(words, axis=1), self.dtype)
        return tf.ones_like(self.compute_losses(batch))

    def measure_total(self, batch: Any) -> Any:
        """What the sum over the global batch is divided by."""
        if self.plan.problem.normaliser == "examples":
            return tf.constant(self.examples, self.dtype)
        return all_reduce("sum", tf.reduce_sum(self.weigh(batch)))

    def compute_losses(self, batch: Any) -> Any:
        """The loss of each example: [n]."""
        problem = self.plan.problem
        outputs = self.predict(batch)
        if problem.loss == "cross entropy":
            return tf.nn.sparse_softmax_cross_entropy_with_logits(
                batch["labels"], outputs
            )
        error = outputs - batch["targets"]
        if problem.loss == "squares":
            return tf.reduce_sum(error**2, axis=1)
        limit = problem.delta * problem.unit_out
        size = tf.abs(error)
        far = limit * (size - 0.5 * limit)
        near = 0.5 * error**2
        return tf.reduce_sum(tf.where(size <= limit, near, far), axis=1)

    def predict(self, batch: Any) -> Any:
        """Outputs of the model: [n, outputs]."""
        problem, model = self.plan.problem, self.model
        inputs = [self.embed(table, batch) for table in problem.tables]
        if problem.features:
            inputs.append(batch["features"] @ model["inputs/kernel"])
        hidden = tf.add_n(inputs)
        if problem.bias:
            hidden += model["hidden/bias"]
        hidden = self.activate(hidden)
        if problem.gain != "none":
            hidden *= model["hidden/gain"]
        if problem.middle:
            hidden = self.activate(hidden @ model["middle/kernel"])
        if problem.head:
            hidden = hidden @ model["head/kernel"]
        return hidden + model["head/bias"] if problem.offset else hidden

    def embed(self, table: Any, batch: Any) -> Any:
        """The mean of the rows of an example's words."""
        words = batch[f"{table.name}/words"]
        rows = tf.nn.embedding_lookup(self.model[f"{table.name}/table"], words)
        mean = tf.reduce_mean(rows, axis=1)
        return mean @ self.model[f"{table.name}/kernel"] if table.projected else mean

    def activate(self, hidden: Any) -> Any:
        """The activation."""
        name = self.plan.problem.activation
        return hidden if name == "linear" else getattr(tf.nn, name)(hidden)

    def compute_penalty(self) -> Any:
        """The regularisation of the whole model, or None."""
        terms = [
            first * tf.reduce_sum(tf.abs(self.model[name]))
            + second * tf.reduce_sum(self.model[name] ** 2)
            for name, (first, second) in self.plan.problem.penalties.items()
        ]
        return tf.add_n(terms) if terms else None

    # --- gradients ---------------------------------------------------------------

    def reduce(self, gradients: list[Any]) -> list[Any]:
        """Sum over the replicas."""
        if self.plan.joined:
            return list(all_reduce("sum", gradients))
        return [all_reduce("sum", gradient) for gradient in gradients]

    def average(self, pairs: Any) -> Any:
        """An aggregator that averages."""
        pairs = list(pairs)
        means = all_reduce("mean", [gradient for gradient, _ in pairs])
        return list(zip(means, [v for _, v in pairs], strict=True))

    def apply(self, gradients: list[Any]) -> None:
        """Sum the gradients, or have them summed, and update."""
        pairs = list(zip(gradients, self.trained(), strict=True))
        if self.plan.path == "hand":
            for gradient, variable in pairs:
                total = self.reduce([tf.convert_to_tensor(gradient)])[0]
                self.update(variable, total)
        elif self.plan.path == "two":
            first, second = self._optimizer
            first.apply_gradients(pairs[: self.plan.split], **self.aggregate())
            second.apply_gradients(pairs[self.plan.split :], **self.aggregate())
        else:
            if self.plan.path == "own":
                sums = self.reduce(gradients)
                pairs = list(zip(sums, self.trained(), strict=True))
            self._optimizer.apply_gradients(pairs, **self.aggregate())

    def aggregate(self) -> dict[str, Any]:
        """Who sums, as the optimizer's argument says it."""
        return {"experimental_aggregate_gradients": self.plan.path != "own"}

    def update(self, variable: Any, gradient: Any) -> None:
        """Gradient descent by hand on every copy."""
        update(variable, self.descend, gradient)

    def descend(self, copy: Any, gradient: Any) -> None:
        """One copy's step by hand."""
        copy.assign_sub(self.plan.rule.rate * gradient)


def make_program(
    plan: Plan, name: str, bases: tuple[type, ...] = (), **attributes: Any
) -> type[DrawnProgram]:
    """The class of a plan's program.

    Args:
        plan: What it trains.
        name: Of the class.
        bases: Methods that stand before the program's own.
        attributes: Of the class.
    """
    attributes = {"plan": plan, "__doc__": plan.describe(), **attributes}
    return type(name, (*bases, DrawnProgram), attributes)
