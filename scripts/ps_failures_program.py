"""The programs of scripts/ps_failures.py: a step waits until its worker is hurt.

Time decides nothing here. Step `HELD` stops where the program says, until it is run
once more. The step after it waits until it has come there, so that a signal which is
sent when the next one begins finds it there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tf_keras.optimizers import legacy

from distbench.samples.servers import OwnNumber, is_served

HELD = 2
SENT = HELD + 2
"""The step with which the signal is sent."""
GOES_ON = SENT + 1
"""The step with which a worker that was stopped goes on."""
_LONGEST_S = 60.0
_STEPS = 16


class HeldAfterWriting:
    """A place for each step, from which it takes 1; the held step waits afterwards."""

    holds = True
    holds_before = False
    until_others = False

    def build(self, strategy: Any) -> None:
        """Make the places."""
        del strategy
        self.tally = tf.Variable(np.zeros(_STEPS, np.float32), name="tally")
        self._optimizer = legacy.SGD(1.0)

    def variables(self) -> list[Any]:
        """The places."""
        return [self.tally]

    def optimizer(self) -> Any:
        """SGD with rate 1."""
        return self._optimizer

    def data(self, step: int) -> tuple[Any, Any]:
        """The place of a step, and its number."""
        place = np.zeros((1, _STEPS), np.float32)
        place[0, step] = 1.0
        return place, np.array([step], np.int64)

    def replica_step(self, batch: Any) -> Any:
        """A step as users write it, which may be held up."""
        place, numbers = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.linalg.matvec(place, self.tally))
        gradient = tape.gradient(loss, self.tally)
        pairs = [(gradient, self.tally)]
        if not is_served():
            self._optimizer.apply_gradients(pairs)
            return loss
        number = numbers[0]
        held = tf.logical_and(tf.equal(number, HELD), self.holds)
        first = tf.cond(held, lambda: tf.equal(_count_tries(1), 1), lambda: False)
        follows = tf.logical_and(tf.equal(number, HELD + 1), self.holds)
        with tf.control_dependencies([_wait(follows, self._has_come)]):
            pass_on = tf.identity(first)
        if self.holds_before:
            pass_on = _wait(pass_on, self._may_go)
        with tf.control_dependencies([pass_on]):
            done = self._optimizer.apply_gradients(pairs)
        if not self.holds_before:
            with tf.control_dependencies([done]):
                _wait(first, self._may_go)
        return loss

    def _has_come(self) -> Any:
        """Whether the held step is where it waits."""
        if self.holds_before:
            return _count_tries(0) >= 1
        return self.tally.read_value()[HELD] <= -1

    def _may_go(self) -> Any:
        """Whether the held step was run again, or the others are through."""
        again = _count_tries(0) >= 2
        if not self.until_others:
            return again
        return tf.logical_or(again, self.tally.read_value()[GOES_ON] <= -1)


class HeldBeforeWriting(HeldAfterWriting):
    """The same, and the held step has written nothing yet."""

    holds_before = True


class HeldForAWhile(HeldAfterWriting):
    """The held step goes on when the others are through."""

    until_others = True


class NeverHeld(HeldAfterWriting):
    """No step is held up."""

    holds = False


def _count_tries(more: int) -> Any:
    """How often the held step has begun: a number on the parameter server."""
    with tf.device("/job:ps/replica:0/task:0/device:CPU:0"):
        return OwnNumber("tries_of_the_held_step").add(more)


def _wait(needed: Any, is_over: Any) -> Any:
    """In the graph of a step: wait until it is over, or for too long."""
    begun = tf.timestamp()

    def goes_on(now: Any, over: Any) -> Any:
        return tf.logical_and(now < begun + _LONGEST_S, tf.logical_not(over))

    def look(now: Any, over: Any) -> Any:
        del now, over
        return tf.timestamp(), is_over()

    return tf.while_loop(
        goes_on, look, (begun, tf.logical_not(needed)), parallel_iterations=1
    )[1]
