"""A correct train program whose every step is a method that a mistake can replace.

Its data is what brings mistakes to light: every replica has other examples and another
number of them, rows of the table are shared between replicas and repeated within one,
and two variables have the same shape.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distbench.samples.lazy import legacy, tf
from distbench.samples.replicas import all_reduce, count_replicas, update

ROWS, WIDTH, FEATURES, HIDDEN, OUTPUTS = 7, 4, 4, 5, 3
TABLE, FIRST, SECOND = "table", "first/kernel", "second/kernel"
BIAS, HEAD = "bias", "head"
TRAINED = (TABLE, FIRST, SECOND, BIAS, HEAD)
DENSE = (FIRST, SECOND, BIAS, HEAD)
BUFFERS = tuple(f"moved{place}" for place in range(len(TRAINED)))
"""What `MomentumByHand` keeps of each, in their order."""


class Program:
    """A table of embeddings and two layers; the optimizer sums the gradients.

    Attributes:
        loss_reduction: How the returned losses combine.
        examples: Size of the global batch, G.
        dtype: Dtype of variables and data.
    """

    loss_reduction: str | None = "sum"
    examples = 22
    dtype = "float32"

    def build(self, strategy: Any) -> None:
        """Make variables and optimizer."""
        del strategy
        rng = np.random.default_rng(7)

        def make(name: str, *shape: int) -> Any:
            initial = rng.normal(size=shape, scale=0.5).astype(self.dtype)
            return tf.Variable(initial, name=name)

        self.table = make(TABLE, ROWS, WIDTH)
        self.first = make(FIRST, WIDTH, HIDDEN)
        self.second = make(SECOND, FEATURES, HIDDEN)
        self.bias = make(BIAS, HIDDEN)
        self.head = make(HEAD, HIDDEN, OUTPUTS)
        self._optimizer = self.make_optimizer()

    def make_optimizer(self) -> Any:
        """The optimizer, or several, or None."""
        return legacy.SGD(0.05, momentum=0.9)

    def variables(self) -> list[Any]:
        """Everything that the model consists of."""
        return self.trained()

    def trained(self) -> list[Any]:
        """What has a gradient."""
        return [self.table, self.first, self.second, self.bias, self.head]

    def optimizer(self) -> Any:
        """What `make_optimizer` made."""
        return self._optimizer

    def data(self, step: int) -> Any:
        """Word numbers, features and targets of the global batch."""
        rng = np.random.default_rng(step + 100)
        words = rng.integers(0, ROWS - 1, size=(self.examples, 3))
        features = rng.normal(size=(self.examples, FEATURES)).astype(self.dtype)
        targets = rng.normal(size=(self.examples, OUTPUTS)).astype(self.dtype)
        return words, features, targets

    def replica_step(self, batch: Any) -> Any:
        """One step of one replica; returns its loss."""
        with tf.GradientTape() as tape:
            loss = self.reduce_losses(self.compute_losses(batch), batch)
            penalty = self.compute_penalty()
            if penalty is not None:
                loss += self.share_penalty(penalty)
        gradients = self.transform(tape.gradient(loss, self.trained()))
        self.apply(gradients)
        return self.report(loss)

    def predict(self, batch: Any) -> Any:
        """Outputs of the model: [n, outputs]."""
        words, features = batch[0], batch[1]
        embedded = tf.reduce_mean(tf.nn.embedding_lookup(self.table, words), axis=1)
        hidden = embedded @ self.first + features @ self.second + self.bias
        return tf.tanh(hidden) @ self.head

    def compute_losses(self, batch: Any) -> Any:
        """The loss of each example: [n]."""
        return tf.reduce_sum((self.predict(batch) - batch[2]) ** 2, axis=1)

    def reduce_losses(self, losses: Any, batch: Any) -> Any:
        """The replica's share of the global batch's loss."""
        del batch
        return tf.reduce_sum(losses) / self.examples

    def compute_penalty(self) -> Any:
        """The regularisation of the whole model, or None."""
        return None

    def share_penalty(self, penalty: Any) -> Any:
        """The replica's share of it."""
        return penalty / count_replicas()

    def transform(self, gradients: list[Any]) -> list[Any]:
        """What the replica does to its own gradients."""
        return gradients

    def apply(self, gradients: list[Any]) -> None:
        """Hand the gradients to the optimizer, which sums them."""
        self._optimizer.apply_gradients(zip(gradients, self.trained(), strict=True))

    def report(self, loss: Any) -> Any:
        """What the step returns."""
        return loss


class OwnMeans:
    """Put before a program: a replica's loss is the mean over its own examples."""

    def reduce_losses(self, losses: Any, batch: Any) -> Any:
        """The mean over the own shard, which nothing divides by N."""
        del batch
        return tf.reduce_mean(losses)


class TimesShare:
    """Put before a program: a replica's loss is N times its share."""

    def reduce_losses(self, losses: Any, batch: Any) -> Any:
        """N times what is to be added up, as an average has it."""
        return super().reduce_losses(losses, batch) * count_replicas()  # type: ignore[misc]


class WholePenalty:
    """Put before a program: every replica has the whole penalty."""

    def share_penalty(self, penalty: Any) -> Any:
        """All of it, which nothing divides by N."""
        return penalty


class PenalisedProgram(Program):
    """A `Program` with an L2 penalty on two kernels."""

    def compute_penalty(self) -> Any:
        """A tenth of the squared kernels."""
        return 0.1 * (tf.reduce_sum(self.second**2) + tf.reduce_sum(self.head**2))


class OwnReduction(Program):
    """The user sums the gradients, the optimizer does not."""

    def reduce(self, gradients: list[Any]) -> list[Any]:
        """Sum over the replicas."""
        return list(all_reduce("sum", gradients))

    def apply(self, gradients: list[Any]) -> None:
        """Sum, then update without a sum."""
        self._optimizer.apply_gradients(
            zip(self.reduce(gradients), self.trained(), strict=True),
            experimental_aggregate_gradients=False,
        )


class ByHand(Program):
    """No optimizer at all: the user sums and updates."""

    rate = 0.05

    def make_optimizer(self) -> Any:
        """There is none."""
        return None

    def apply(self, gradients: list[Any]) -> None:
        """Sum and update every variable."""
        for gradient, variable in zip(gradients, self.trained(), strict=True):
            self.update(variable, self.reduce(tf.convert_to_tensor(gradient)))

    def reduce(self, gradient: Any) -> Any:
        """Sum over the replicas."""
        return all_reduce("sum", gradient)

    def update(self, variable: Any, gradient: Any) -> None:
        """Gradient descent on every copy."""
        update(variable, self.descend, gradient)

    def descend(self, copy: Any, gradient: Any) -> None:
        """One copy's step."""
        copy.assign_sub(self.rate * gradient)


class PartlyByHand(ByHand):
    """An optimizer takes table and kernels; the user sums and updates the others."""

    def make_optimizer(self) -> Any:
        """What takes the first three variables."""
        return legacy.SGD(0.05, momentum=0.9)

    def apply(self, gradients: list[Any]) -> None:
        """Hand some gradients to the optimizer, and sum the others."""
        pairs = list(zip(gradients, self.trained(), strict=True))
        self._optimizer.apply_gradients(pairs[:3])
        for gradient, variable in pairs[3:]:
            self.update(variable, self.reduce(gradient))


class MomentumByHand(ByHand):
    """The user keeps the momentum too, in variables of the program."""

    beta = 0.75

    def build(self, strategy: Any) -> None:
        """Make the model, and a buffer for each of its variables."""
        super().build(strategy)
        self.buffers = [
            tf.Variable(tf.zeros(v.shape, v.dtype), trainable=False, name=f"moved{i}")
            for i, v in enumerate(self.trained())
        ]

    def variables(self) -> list[Any]:
        """The model and the buffers."""
        return [*self.trained(), *self.buffers]

    def apply(self, gradients: list[Any]) -> None:
        """Sum, then change buffer and variable."""
        for place, gradient in enumerate(gradients):
            self.take(place, gradient)

    def take(self, place: int, gradient: Any) -> None:
        """Change the buffer and the variable of a place."""
        total = self.reduce(tf.convert_to_tensor(gradient))
        update(self.buffers[place], self.move, total)
        self.update(self.trained()[place], tf.identity(self.buffers[place]))

    def move(self, copy: Any, gradient: Any) -> None:
        """One copy's buffer."""
        copy.assign(self.beta * copy + gradient)


class AdamByHand(ByHand):
    """The user keeps two moments of the gradient, and divides by one of them.

    Attributes:
        moved: What the first moment is after the step, where the second one is taken.
    """

    def build(self, strategy: Any) -> None:
        """Make the model, and two moments for each of its variables."""
        super().build(strategy)
        self.moments, self.squares = (
            [
                tf.Variable(tf.zeros_like(v), trainable=False, name=f"{name}{i}")
                for i, v in enumerate(self.trained())
            ]
            for name in ("moment", "square")
        )

    def variables(self) -> list[Any]:
        """The model and the moments."""
        return [*self.trained(), *self.moments, *self.squares]

    def apply(self, gradients: list[Any]) -> None:
        """Sum all gradients, then change the moments and the variables."""
        own = [tf.convert_to_tensor(gradient) for gradient in gradients]
        total = self.reduce_all(own)
        for place, variable in enumerate(self.trained()):
            moment, square = self.moments[place], self.squares[place]
            update(moment, self.move, self.take_first(own[place], total[place]))
            self.moved = tf.identity(moment)
            update(square, self.move, self.take_second(own[place], total[place]))
            below = tf.sqrt(tf.identity(square)) + self.find_epsilon()
            self.update(variable, tf.identity(moment) / below)

    def reduce_all(self, gradients: list[Any]) -> list[Any]:
        """Sum over the replicas."""
        return list(all_reduce("sum", gradients))

    def find_epsilon(self) -> float:
        """What is added to the root of the second moment."""
        return 1e-3

    def take_first(self, own: Any, total: Any) -> Any:
        """What the first moment takes: the reduced gradient."""
        del own
        return total

    def take_second(self, own: Any, total: Any) -> Any:
        """What the second moment takes: its square."""
        del own
        return total**2

    def move(self, copy: Any, taken: Any) -> None:
        """One copy's moment."""
        copy.assign(0.9 * copy + 0.1 * taken)


class DecayedByHand(Program):
    """The optimizer knows of no decay: the loop shrinks every copy after the step."""

    decay = 0.03

    def apply(self, gradients: list[Any]) -> None:
        """Hand the gradients to the optimizer, then shrink what it left."""
        super().apply(gradients)
        for variable in self.trained():
            update(variable, self.shrink)

    def shrink(self, copy: Any) -> None:
        """One copy's decay."""
        copy.assign_sub(self.decay * copy)


class Constrained(Program):
    """The loop keeps a variable positive: it projects every copy after the step."""

    def apply(self, gradients: list[Any]) -> None:
        """Hand the gradients to the optimizer, then project."""
        super().apply(gradients)
        update(self.head, self.constrain)

    def constrain(self, copy: Any) -> None:
        """One copy's projection."""
        copy.assign(tf.maximum(copy, 0.0))
