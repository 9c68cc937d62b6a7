"""Who calls into TensorFlow from outside: there a step of a user's own loop ends."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.concrete_function import (
    ConcreteFunction,
)

from distbench.errors import BadInputError
from distbench.worker.process.failures import find_cause
from distbench.worker.process.intercept import Undo, hide_from_autograph, intercept


class OutermostCalls:
    """Sees each call of a `tf.function` or of `strategy.run` that is in no other.

    Only the thread that made this object is watched: replicas that run op by op are
    threads of their own, and what they call belongs to the call that started them.

    Args:
        begin: Called before each; what it returns is given to `end`.
        end: Called after each that raised nothing.
        drop: Called after each that raised, as of a data set that has come to its end.
            It is given the same.
    """

    def __init__(
        self,
        begin: Callable[[], Any],
        end: Callable[[Any], None],
        drop: Callable[[Any], None],
    ) -> None:
        self._begin = begin
        self._end = end
        self._drop = drop
        self._thread = threading.get_ident()
        self._depth = 0

    @property
    def is_outside(self) -> bool:
        """Whether the code that asks is the user's loop, inside of no such call."""
        is_ours = threading.get_ident() == self._thread
        return is_ours and self._depth == 0 and tf.executing_eagerly()

    def watch(self, strategy: tf.distribute.Strategy) -> list[Undo]:
        """Stand in front of functions and of a strategy; returns how to step aside."""
        function = type(tf.function(lambda: None))
        return [
            _intercept_calls(function, self.pass_on),
            _intercept_calls(ConcreteFunction, self.pass_on),
            intercept(strategy, "run", self.pass_on),
        ]

    def pass_on(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function, with an eye on it if it is an outermost one."""
        if not self.is_outside:
            return original(*args, **kwargs)
        before = self._begin()
        self._depth += 1
        try:
            result = original(*args, **kwargs)
        except Exception as error:
            self._drop(before)
            # AutoGraph wraps what a tap raises while a step is traced.
            if (refusal := find_cause(error, BadInputError)) is not None:
                raise refusal from None
            raise
        finally:
            self._depth -= 1
        self._end(before)
        return result


def _intercept_calls(kind: Any, replacement: Callable[..., Any]) -> Undo:
    """Stand in front of all calls of the instances of a class."""
    original = kind.__call__

    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return replacement(functools.partial(original, self), *args, **kwargs)

    hide_from_autograph(call)
    kind.__call__ = call
    return lambda: setattr(kind, "__call__", original)
