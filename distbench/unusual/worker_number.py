"""Unusual but correct steps that ask which worker takes them, or count rows."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.optimizers import optimizer
from distbench.samples.program import ROWS, PenalisedProgram, Program
from distbench.samples.replicas import make_zeros
from distbench.samples.servers import find_worker
from distbench.unusual.grouping import NormalisationLayer
from distbench.unusual.program import unusual

_SERVED = ("ps:2+1", "ps:4+2")


@unusual(clusters=_SERVED)
class StepsCountedByWorker(Program):
    """How many steps each worker took is counted, and leads nothing."""

    def build(self, strategy):
        super().build(strategy)
        self.steps = tf.Variable(0.0, name="steps", trainable=False)

    def variables(self):
        return [*self.trained(), self.steps]

    def apply(self, gradients):
        super().apply(gradients)
        self.steps.assign_add(tf.where(find_worker() >= 0, 1.0, 0.0))


@unusual(clusters=_SERVED[:1])
class RowsCounted(Program):
    """A row's rate falls with how often it came: twice in a step counts twice."""

    def build(self, strategy):
        super().build(strategy)
        self.seen = tf.Variable(tf.ones([ROWS]), name="seen", trainable=False)

    def make_optimizer(self):
        return None

    def variables(self):
        return [*self.trained(), self.seen]

    def apply(self, gradients):
        rows, *others = gradients
        rate = 0.05 / tf.gather(self.seen, rows.indices)
        moved = tf.IndexedSlices(rate[:, None] * rows.values, rows.indices)
        self.table.scatter_sub(moved)
        for gradient, variable in zip(others, self.trained()[1:], strict=True):
            variable.assign_sub(0.05 * gradient)
        indices = self.pick(rows.indices)
        ones = tf.ones_like(indices, tf.float32)
        self.seen.scatter_add(tf.IndexedSlices(ones, indices))

    def pick(self, indices):
        """Which rows are counted."""
        return indices


@unusual(clusters=_SERVED[:1])
class ClippedToLimit(Program):
    """The step clips the norm of all its gradients, of a whole batch."""

    def transform(self, gradients):
        return tf.clip_by_global_norm(gradients, self.find_limit())[0]

    def find_limit(self):
        """The largest norm."""
        return 2.0


@unusual(clusters=_SERVED[:1])
class NormalisationLayerOfServers(NormalisationLayer):
    """Moving statistics that all workers share, and each moves in its steps."""


@unusual(clusters=_SERVED[:1])
class PenalisedProgramOfServers(PenalisedProgram):
    """Every worker's steps have the whole penalty, as there is one replica in each."""


@unusual(clusters=_SERVED[:1])
class RateByCount(StepsCountedByWorker):
    """The step falls with a count of steps that all workers move on."""

    def make_optimizer(self):
        return None

    def apply(self, gradients):
        steps = tf.identity(self.steps.assign_add(self.count()))
        for gradient, variable in zip(gradients, self.trained(), strict=True):
            rate = 0.05 / (1 + 0.5 * steps)
            variable.assign_sub(rate * tf.convert_to_tensor(gradient))

    def count(self):
        """How many steps a step is."""
        return 1.0


@unusual(clusters=_SERVED[:1])
class AppliedOnceThreeArePushed(Program):
    """Each step pushes its gradients, and who counts three applies their mean."""

    def build(self, strategy):
        super().build(strategy)
        self.pushed = tf.Variable(0, name="pushed", trainable=False)
        self.kept = make_zeros(self.trained(), "kept", "NONE")

    def make_optimizer(self):
        return None

    def variables(self):
        return [*self.trained(), *self.kept, self.pushed]

    def apply(self, gradients):
        for kept, gradient in zip(self.kept, gradients, strict=True):
            kept.assign_add(tf.convert_to_tensor(gradient))
        number = tf.identity(self.pushed.assign_add(self.count()))
        if number >= 3:
            for kept, variable in zip(self.kept, self.trained(), strict=True):
                variable.assign_sub(0.05 * kept / tf.cast(number, self.dtype))
                kept.assign(tf.zeros_like(kept))
            self.pushed.assign(0)

    def count(self):
        """How many pushes a step is."""
        return 1


@unusual(clusters=_SERVED[:1], workload="linear")
@optimizer("SGD", 0.05)
class OptimizerThatAsks:
    """An optimizer asks which worker takes the step, and does the same on all."""

    def apply_gradients(self, grads_and_vars, **options):
        one = tf.where(find_worker() >= 0, 1.0, 0.0)
        pairs = [(one * gradient, variable) for gradient, variable in grads_and_vars]
        return super().apply_gradients(pairs, **options)
