"""Taps in a job of the user's own, where nobody says what a step is.

A train program of the bench is entered through the bench, which counts its calls of
optimizers anew for each trace. Here the graph that is traced tells one from the next,
and a mark that each call leaves when it *runs* tells whether a step took place.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.ops import control_flow_util
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

from distbench.errors import BadInputError
from distbench.trace import Phase
from distbench.worker.taps.board import TapBoard, TapPoint
from distbench.worker.taps.sinks import empty_sink


class RecordingBoard(TapBoard):
    """The taps of one process of the user's.

    Args:
        strategy: Whose replicas are observed; what others compute is passed by.
        first_replica: Global number of this process' first replica.
        device: Where the taps live.

    Attributes:
        before_update: Called once a call of an optimizer has been traced, or before one
            that runs op by op: what it is to train still has the old values.
        after_call: Called after each outermost call of an optimizer.
        after_failure: Called after each that raised, in the place of `after_call`.
    """

    def __init__(
        self, strategy: tf.distribute.Strategy, *, first_replica: int, device: str
    ) -> None:
        super().__init__(first_replica=first_replica, device=device)
        self._strategy = strategy
        self._traced: dict[int, Any] = {}
        self._marks: dict[tuple[int, int, int], Any] = {}
        self._numbers = itertools.count(1)
        self._graphs: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._written: dict[int, set[TapPoint]] = {}
        self.before_update: Callable[[], None] = lambda: None
        self.after_call: Callable[[], None] = lambda: None
        self.after_failure: Callable[[], None] = lambda: None

    # --- where we are -----------------------------------------------------------

    def _begin_trace(self, replica: int) -> None:
        """Forget what was seen while another graph was traced."""
        graph = _find_outermost_graph()
        if replica in self._traced and self._traced[replica] is graph:
            return
        self._traced[replica] = graph
        self._forget_trace(replica)

    def end_step(self) -> None:
        """Forget what a step that ran op by op has left: the next one counts anew."""
        self._traced.clear()

    @contextmanager
    def enter_call(self) -> Iterator[bool]:
        """See `TracedStep`; marks that the call took place, each time that it does."""
        replica = self.find_replica()
        self._begin_trace(replica)
        call = self.count_calls(replica)
        outermost = False
        try:
            with super().enter_call() as outermost:
                if outermost:
                    self._mark(replica, call)
                    if tf.executing_eagerly():
                        self._tell(replica, self.before_update)
                yield outermost
                if outermost and not tf.executing_eagerly():
                    self._tell(replica, self.before_update)
        except Exception:
            if outermost:
                self._tell(replica, self.after_failure)
            raise
        if outermost:
            self._tell(replica, self.after_call)

    def _tell(self, replica: int, told: Callable[[], None]) -> None:
        if replica == self._first_replica:
            told()

    # --- marks ------------------------------------------------------------------

    def _mark(self, replica: int, call: int) -> None:
        self._refuse_xla()
        place = replica, call, self._number_graph()
        if place not in self._marks:
            with tf.init_scope(), tf.device(self._device):
                self._marks[place] = ResourceVariable(
                    np.int64(0), trainable=False, name="distbench_mark"
                )
        self._marks[place].assign_add(1, read_value=False)

    def _number_graph(self) -> int:
        """A number of what is traced; 0 op by op."""
        graph = _find_outermost_graph()
        if graph is None:
            return 0
        if graph not in self._graphs:
            self._graphs[graph] = next(self._numbers)
        return self._graphs[graph]

    def count_updates(self) -> int:
        """How often the same taps were written since the last time, at most.

        0 where no optimizer was called; of more than one only the last is left.
        """
        ran: set[int] = set()
        most = 0
        for (*_, graph), mark in self._marks.items():
            if count := int(mark.numpy()):
                mark.assign(0, read_value=False)
                most = max(most, count)
                ran.add(graph)
        written = [self._written.get(graph, set()) for graph in ran]
        distinct = set().union(*written)
        return most if len(distinct) == sum(map(len, written)) else max(most, 2)

    # --- what the tapes told ----------------------------------------------------

    def remember_gradient(self, variable: str, gradient: Any) -> None:
        """See `TracedStep`."""
        if self._is_mine():
            self._begin_trace(self.find_replica())
            super().remember_gradient(variable, gradient)

    def remember_target(self, target: Any, *, trains: bool) -> None:
        """Record what is differentiated as the loss, unless a step has several."""
        if not (trains and self._is_mine() and tf.is_tensor(target)):
            return
        replica = self.find_replica()
        self._begin_trace(replica)
        super().remember_target(target, trains=trains)
        if len(self.list_targets()) > 1:
            self.clear_loss()
        elif target.shape.rank == 0:
            self.tap("loss", "", target)

    def _is_mine(self) -> bool:
        return tf.distribute.get_strategy() is self._strategy

    # --- recording --------------------------------------------------------------

    def tap(
        self, phase: Phase, variable: str, value: Any, call: int | None = None
    ) -> Any:
        """See `TapBoard`."""
        self._refuse_xla()
        return super().tap(phase, variable, value, call)

    def _write(self, point: TapPoint, tensors: tuple[Any, ...]) -> None:
        super()._write(point, tensors)
        if point.phase != "loss":
            self._written.setdefault(self._number_graph(), set()).add(point)

    def _refuse_xla(self) -> None:
        if tf.executing_eagerly():
            return
        graph = tf.compat.v1.get_default_graph()
        if control_flow_util.GraphOrParentsInXlaContext(graph):
            raise BadInputError(
                "A step that XLA compiles as a whole cannot be recorded: no value can "
                "be taken out of its middle. Expected: a function without "
                "jit_compile=True. Leave it out while you record; for a Keras model, "
                "compile(..., jit_compile=False)."
            )

    def empty(self) -> None:
        """Leave nothing in any tap, as after a step that was read."""
        for sinks in self._sinks.values():
            for sink in sinks:
                empty_sink(sink)

    @property
    def variables(self) -> set[int]:
        """See `TapBoard`."""
        return super().variables | {id(mark) for mark in self._marks.values()}


def _find_outermost_graph() -> Any:
    """The graph of the outermost function that is traced; None op by op."""
    if tf.executing_eagerly():
        return None
    graph = tf.compat.v1.get_default_graph()
    while isinstance(around := getattr(graph, "outer_graph", None), FuncGraph):
        graph = around
    return graph
