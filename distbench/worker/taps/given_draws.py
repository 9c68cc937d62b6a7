"""Random numbers that belong to examples, in the place of those that a step draws.

What a step draws is drawn anew whenever it runs, so of a step that draws one device
shows no more than scatter, in which mistakes hide. Inside a step that is given its
numbers each row of a draw with a row for each example is a function of that example,
and everything else that is drawn of the step alone. Then they are data like the
examples: the same on one device, of whichever examples a batch is made.

TensorFlow's functions that make the ops are replaced for the whole process, since
everybody draws by them: its own layers, both Kerases, generators and the user.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow.python.framework import tensor_util
from tensorflow.python.ops.control_flow_v2_func_graphs import (
    ControlFlowFuncGraph,
    WhileBodyFuncGraph,
    WhileCondFuncGraph,
)

from distbench.trace.content import digest_64
from distbench.worker.process.intercept import hide_from_autograph
from distbench.worker.process.sources import is_of, is_of_caller
from distbench.worker.taps.counted_numbers import count_numbers
from distbench.worker.taps.layouts import UNKNOWN, Layouts, count_traced
from distbench.worker.taps.replaced_draws import Give, list_replaced

_TURNS = 1_000_003
"""A prime: the turns of loops in loops give streams of their own."""
_COPIES = 0xD1B54A32D192ED03
"""Odd, and nowhere near the others: tells the rows of one example apart."""
_KEYS = ("StatelessRandomGetKeyCounter", "StatelessRandomGetKeyCounterAlg")


class Draws(Protocol):
    """Whose random numbers a step has."""

    are_given: bool

    def tell_step(self, step: int) -> None:
        """Say which step comes next."""

    def tell_examples(self, shards: Sequence[Any]) -> None:
        """Say on which examples it is run: on a shard for each replica, or on one."""

    def enter(self, batch: Any) -> AbstractContextManager[None]:
        """Around a replica's step on its batch."""

    def shift(self, steps: int) -> AbstractContextManager[None]:
        """Inside, steps are given the numbers of so many steps later."""


class OwnDraws:
    """A step draws for itself."""

    are_given = False

    def tell_step(self, step: int) -> None:
        """Nobody has to know."""

    def tell_examples(self, shards: Sequence[Any]) -> None:
        """Nobody has to know."""

    def enter(self, batch: Any) -> AbstractContextManager[None]:
        """Nothing is given."""
        del batch
        return nullcontext()

    def shift(self, steps: int) -> AbstractContextManager[None]:
        """Which numbers come is the step's own business."""
        del steps
        return nullcontext()


class GivenDraws:
    """What the steps of a process are given in the place of what they draw.

    Args:
        replicas: Global numbers of the replicas of this process.
        find_replica: Says for which of them the calling code runs.
        list_shapes: Lists the shapes of all variables.
        device: Where a step's number and its examples are kept.
    """

    are_given = True

    def __init__(
        self,
        replicas: Sequence[int],
        find_replica: Callable[[], int],
        list_shapes: Callable[[], Iterable[tuple[int, ...]]],
        device: str,
    ) -> None:
        self._find_replica = find_replica
        self._list_shapes = list_shapes
        with tf.init_scope(), tf.device(device):
            self._step = tf.Variable(0, dtype=tf.int64, trainable=False)
            self._rows = {
                replica: tf.Variable(
                    np.zeros(0, np.int64), shape=[None], trainable=False
                )
                for replica in replicas
            }
        self._beyond = 0
        self._local = threading.local()
        self._inside = 0
        self._drawn: dict[tuple[object, ...], list[Hashable]] = {}
        self._layouts = Layouts()
        for module, name, give in list_replaced():
            _replace(module, name, self, give)

    def tell_step(self, step: int) -> None:
        """Say which step comes next."""
        self._step.assign(step + self._beyond)

    def tell_examples(self, shards: Sequence[Any]) -> None:
        """Say on which examples it is run.

        Args:
            shards: By global number of the replica; of one alone, its own.
        """
        for replica, rows in self._rows.items():
            rows.assign(digest_examples(shards[min(replica, len(shards) - 1)]))

    @contextmanager
    def enter(self, batch: Any) -> Iterator[None]:
        """Around a replica's step on its batch: inside, what is drawn is given."""
        if not self._inside:
            self._drawn.clear()
        before = self._local.__dict__.copy()
        self._local.eager = tf.executing_eagerly()
        self._local.examples = count_traced(batch)
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
            self._local.__dict__.clear()
            self._local.__dict__.update(before)

    @contextmanager
    def shift(self, steps: int) -> Iterator[None]:
        """Inside, steps are given the numbers of so many steps later."""
        self._beyond = steps
        try:
            yield
        finally:
            self._beyond = 0

    @property
    def is_inside(self) -> bool:
        """Whether the calling code is a step's.

        In the middle of one, what makes variables leaves its graph for a while.
        """
        eager = getattr(self._local, "eager", False)
        return self._inside > 0 and tf.executing_eagerly() == eager

    def count(self, shape: Any, seed: Any = None) -> Any:
        """Numbers for what is drawn here: uint64 of a shape.

        Args:
            shape: Of one dimension.
            seed: What they were to be drawn by; None of what moves on by itself.
        """
        shape = tf.convert_to_tensor(shape)
        rank = shape.shape[0]
        name = self._name_draw(seed)
        stream = self._make_stream(*name)
        if rank is None:
            number = tf.reduce_prod(shape)
            return tf.reshape(count_numbers([_list_places(number)], stream), shape)
        known = tensor_util.constant_value_as_shape(shape)
        numbers = count_numbers(self._list_axes(shape, known, name), stream)
        numbers.set_shape(known)
        return numbers

    def _list_axes(
        self, shape: Any, known: tf.TensorShape, name: tuple[str, int]
    ) -> list[Any]:
        """What stands for the places of each axis: of one, examples, if it has them.

        Where there are several rows for each example, it and the row's number among
        these.
        """
        rank = len(known)
        places = [_list_places(shape[axis]) for axis in range(rank)]
        if tf.distribute.in_cross_replica_context():
            return places
        rows = self._rows[self._find_replica()]
        examples = tf.cast(tf.size(rows), shape.dtype)
        # One more, so that there is a row to take where there is no example.
        taken = tf.concat([rows, tf.zeros([1], tf.int64)], 0)
        traced = self._local.__dict__.get("examples", UNKNOWN)
        graph, count = tf.compat.v1.get_default_graph(), tf.maximum(examples, 1)
        found = self._layouts.find(name, traced, known.as_list())
        is_open = tf.constant(True)
        if found is None:
            is_open = tf.logical_not(self._is_of_variable(shape, rank))
        for axis, own in enumerate(places):
            if found is not None and axis not in found:
                continue
            each = tf.ones_like(examples)
            if found is not None:
                each = tf.maximum(shape[axis] // count, 1)
            has_rows = tf.logical_and(is_open, tf.equal(shape[axis], each * examples))
            row = tf.range(shape[axis])
            example, copy = row // each, row % each
            if self._layouts.is_stacked(name, graph, traced, known[axis]):
                copy, example = row // count, row % count
            content = tf.gather(taken, tf.minimum(example, examples))
            copies = tf.cast(copy, tf.uint64) * tf.constant(_COPIES, tf.uint64)
            content = tf.bitcast(content, tf.uint64) + copies
            places[axis] = tf.where(has_rows, content, own)
            is_open = tf.logical_and(is_open, tf.logical_not(has_rows))
        return places

    def _is_of_variable(self, shape: Any, rank: int) -> Any:
        """Whether it is drawn for a variable, which may happen to have as many rows."""
        shapes = sorted({s for s in self._list_shapes() if len(s) == rank})
        if not shapes:
            return tf.constant(False)
        alike = tf.equal(shape[None], tf.constant(shapes, shape.dtype))
        return tf.reduce_any(tf.reduce_all(alike, -1))

    def _name_draw(self, seed: Any) -> tuple[str, int]:
        """Each draw of a step, by its function and how often that has drawn.

        By one seed always the same is drawn; which one it is, replicas may say by their
        numbers, so only how many others there were counts. Counted for each graph by
        itself, as a function may be traced in one step and be there already in the
        next.
        """
        function = _find_function()
        place = (
            *(function, tf.compat.v1.get_default_graph(), threading.get_ident()),
            *(self._find_replica(), tf.distribute.in_cross_replica_context()),
        )
        drawn = self._drawn.setdefault(place, [])
        name = None if seed is None else _name_seed(seed)
        if name is None or name not in drawn:
            drawn.append(name)
        return function, len(drawn) - 1 if name is None else drawn.index(name)

    def _make_stream(self, function: str, number: int) -> Any:
        """One for each draw and step.

        Each turn of a loop has its own: one that waits for other numbers would not end.
        """
        own = _digest(f"{function} {number}".encode())
        stream = self._step + tf.constant(own, tf.int64)
        for turns in _list_turns():
            stream = _TURNS * stream + tf.cast(turns, tf.int64)
        return tf.bitcast(stream, tf.uint64)


def _list_places(number: Any) -> Any:
    return tf.cast(tf.range(tf.cast(number, tf.int64)), tf.uint64)


def digest_examples(batch: Any) -> npt.NDArray[np.int64]:
    """A number for each example of a batch, made of all that it consists of."""
    arrays = [np.asarray(array) for array in tf.nest.flatten(batch)]
    examples = min((len(a) for a in arrays if a.ndim), default=0)
    taken = [a for a in arrays if a.ndim]
    found = np.zeros(examples, np.int64)
    for row in range(examples):
        content = b"".join(_read_bytes(array[row : row + 1]) for array in taken)
        found[row] = _digest(content)
    return found


def _read_bytes(array: npt.NDArray[Any]) -> bytes:
    # Elements that are Python objects, as text is, have no bytes but their address.
    return repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()


def _digest(content: bytes) -> int:
    """56 bits, which an int64 has room for."""
    return int.from_bytes(digest_64(np.frombuffer(content, np.uint8))[:7], "little")


def _find_function() -> str:
    """The function that draws, of the user or of a Keras, by its name in the source.

    AutoGraph has given it another name, and other lines.
    """
    frame: Any = sys._getframe(1)
    while frame is not None:
        file, function = frame.f_code.co_filename, frame.f_code.co_name
        if not is_of(file, "tensorflow") and not is_of_caller(file):
            return function.removeprefix("tf__")
        frame = frame.f_back
    return ""


def _name_seed(key: Any) -> Hashable:
    """What tells a seed from others: its numbers where they are known, or its tensor.

    Args:
        key: The seed, or the key that TensorFlow has made of it.
    """
    if isinstance(key, tf.__internal__.EagerTensor):
        return "numbers", str(key.numpy().tolist())
    if key.op.type in _KEYS:
        key = key.op.inputs[0]
    known = tf.get_static_value(key)
    # In a pair, as a reference is compared with references alone.
    return ("tensor", key.ref()) if known is None else ("numbers", str(known.tolist()))


def _list_turns() -> list[Any]:
    """How often each loop around what is drawn has gone round, int32.

    TensorFlow counts that in the first thing that a loop hands on (`while_v2.py`). Not
    of loops around a function that is traced once for all of them.
    """
    graph: Any = tf.compat.v1.get_default_graph()
    turns = []
    while isinstance(graph, ControlFlowFuncGraph):
        if isinstance(graph, (WhileBodyFuncGraph, WhileCondFuncGraph)):
            turns.append(graph.inputs[0])
        graph = graph.outer_graph
    return turns


def _replace(module: Any, name: str, draws: GivenDraws, give: Give) -> None:
    original = getattr(module, name)

    def draw(*args: Any, **kwargs: Any) -> Any:
        if not draws.is_inside:
            return original(*args, **kwargs)
        return give(partial(draws.count, seed=kwargs.get("key")), *args, **kwargs)

    hide_from_autograph(draw)
    setattr(module, name, draw)
