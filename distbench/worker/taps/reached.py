"""How far each replica is in a step, and where in it an op is that fails in a run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from distbench.trace import Phase

_FAILED_NODE = re.compile(r"Detected at node (\S+) defined at|\{\{node ([^}\s]+)\}\}")
"""How a message of TensorFlow's runtime names the op that failed, or one around it."""


@dataclass(frozen=True)
class _Mark:
    """One phase that a replica came by.

    Attributes:
        phase: Which.
        before: How many ops the graph of the replica's step had by then.
        is_inside: Whether in a graph inside of that one, such as a branch, whose own
            ops are made before the op that it belongs to.
    """

    phase: Phase
    before: int
    is_inside: bool


class Reached:
    """The phases that the replicas of a task came by in the step traced last."""

    def __init__(self) -> None:
        self._marks: dict[int, list[_Mark]] = {}
        self._graphs: dict[int, tf.Graph] = {}

    def begin(self, replica: int) -> None:
        """A replica begins its step, in another trace than before."""
        self._marks[replica] = []
        self._graphs.pop(replica, None)
        if not tf.executing_eagerly():
            self._graphs[replica] = tf.compat.v1.get_default_graph()

    def pass_by(self, replica: int, phase: Phase) -> None:
        """A replica comes by a phase."""
        graph, count = self._graphs.get(replica), 0
        is_inside = False
        if graph is not None:
            count = graph.version  # so many ops it has; to list them takes long
            is_inside = tf.compat.v1.get_default_graph() is not graph
        self._marks.setdefault(replica, []).append(_Mark(phase, count, is_inside))

    def find_last(self, replica: int) -> Phase:
        """The last phase that a replica came by; `loss` if there is none."""
        marks = self._marks.get(replica)
        return marks[-1].phase if marks else "loss"

    def locate(
        self, message: str, devices: Sequence[str], first_replica: int
    ) -> tuple[int | None, Phase | None]:
        """The replica whose op failed in a run, and the last phase before that op.

        What replicas do together, as a reduction, is none of one replica's where a
        task has several.

        Args:
            message: What TensorFlow's runtime said.
            devices: That of each of the task's replicas; empty where it has one.
            first_replica: Global number of the first of them.

        Returns:
            None for what cannot be told.
        """
        for replica, graph in self._graphs.items():
            op = _find_op(graph, message)
            if op is None:
                continue
            if len(devices) > 1:
                if op.device not in devices:
                    return None, None
                replica = first_replica + devices.index(op.device)
            made = graph.get_operations().index(op)
            past = [m for m in self._marks.get(replica, ()) if m.before <= made]
            if past and past[-1].is_inside:
                return replica, None
            return replica, past[-1].phase if past else "loss"
        return None, None


def _find_op(graph: tf.Graph, message: str) -> tf.Operation | None:
    """The op of a graph that a message names, or that runs what it names."""
    for found in _FAILED_NODE.finditer(message):
        parts = (found[1] or found[2]).split("/")
        for count in range(len(parts), 0, -1):
            try:
                op = graph.get_operation_by_name("/".join(parts[:count]))
            except (KeyError, ValueError):
                continue
            if count == len(parts) or _runs_graph(op):
                return op
    return None


def _runs_graph(op: tf.Operation) -> bool:
    """Whether an op runs another graph: a branch, a loop or a call."""
    attributes = op.node_def.attr.values()
    return any(value.WhichOneof("value") == "func" for value in attributes)
