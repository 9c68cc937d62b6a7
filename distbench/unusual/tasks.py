"""Gradients of two losses, of which the program makes one."""

from __future__ import annotations

from distbench.samples.lazy import tf
from distbench.samples.program import Program
from distbench.samples.replicas import all_reduce
from distbench.unusual.grouping import BatchStatistics
from distbench.unusual.program import unusual


@unusual()
class TasksWeighed(Program):
    """A weighted sum of the gradients of two tasks, each from a tape of its own."""

    def replica_step(self, batch):
        tasks, gradients = [], []
        for part in (slice(1), slice(1, None)):
            with tf.GradientTape() as tape:
                squares = (self.predict(batch) - batch[2])[:, part] ** 2
                task = tf.reduce_sum(squares) / self.examples
            own = tape.gradient(task, self.trained())
            gradients.append([tf.convert_to_tensor(gradient) for gradient in own])
            tasks.append(task)
        self.apply(self.combine(*map(self.send, gradients)))
        return self.report(sum(tasks))

    def send(self, gradients):
        """What becomes of a task's gradients before they are combined."""
        return gradients

    def combine(self, first, second):
        """One gradient of both, for each variable."""
        return [0.25 * a + 0.75 * b for a, b in zip(first, second, strict=True)]


@unusual()
class TasksWithoutWhatIsAlongOthers(TasksWeighed):
    """Each task's gradients are summed, and one loses what it has along the other."""

    def send(self, gradients):
        return list(all_reduce("sum", gradients))

    def combine(self, first, second):
        pairs = list(zip(first, second, strict=True))
        along = tf.add_n([tf.reduce_sum(a * b) for a, b in pairs])
        share = along / tf.linalg.global_norm(first) ** 2
        return [a + b - share * a for a, b in pairs]

    def apply(self, gradients):
        self._optimizer.apply_gradients(
            zip(gradients, self.trained(), strict=True),
            experimental_aggregate_gradients=False,
        )


@unusual()
class StepsOffWhatItRemembers(Program):
    """Gradients lose what would undo a few examples that all replicas keep."""

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            loss = self.reduce_losses(self.compute_losses(batch), batch)
        own = tape.gradient(loss, self.trained())
        with tf.GradientTape() as tape:
            kept = tf.reduce_mean(self.compute_losses(self.data(1000)))
        first = self.send([tf.convert_to_tensor(gradient) for gradient in own])
        second = list(map(tf.convert_to_tensor, tape.gradient(kept, self.trained())))
        pairs = list(zip(first, second, strict=True))
        along = tf.add_n([tf.reduce_sum(a * b) for a, b in pairs])
        share = tf.minimum(along / tf.linalg.global_norm(second) ** 2, 0.0)
        self.apply([a - share * b for a, b in pairs])
        return loss

    send = TasksWithoutWhatIsAlongOthers.send
    apply = TasksWithoutWhatIsAlongOthers.apply


@unusual()
class TasksWeighedUnderStatistics(BatchStatistics, TasksWeighed):
    """A weighted sum of two tasks' gradients, under statistics of the own examples."""
