"""In which collectives this task was last, and in which one it waits.

TensorFlow gives every collective of a function its number when the function is called,
by a Python callback. That is where a record is kept: nothing is added to the graph.
Workers meet in a collective if they came to it with the same number.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute.cross_device_utils import CollectiveReplicaLauncher
from tensorflow.python.eager import context

from distbench.worker.process.intercept import hide_from_autograph

KEPT = 1 << 14
"""How many collectives are remembered. One call of a function gives all of its first
replica their numbers, then all of its second: the two of a number lie far apart."""
_NAMED = 3
_PACKING = ("ConcatV2", "Reshape", "Identity")
GIVEN_UP = "distbench gave this wait up"

_NODE = re.compile(r"\{\{(?:function_node [^}]*\}\}\{\{)?node (?P<node>[^} ]+)\}\}")
_TIMED_OUT = re.compile(r"Detected at node (?P<node>\S*Collective\S*) ")
_MISMATCH = re.compile(r"Shape mismatch in the collective instance (?P<number>\d+)\.")


@dataclass(slots=True, kw_only=True)
class Collective:
    """A call of a collective, as a function was traced or an eager step came to it.

    Attributes:
        kind: `all_reduce` or `all_gather`.
        tensors: Names of the tensors that were given to it, empty if it ran eagerly.
        shape: Its shape, as text.
        dtype: Its dtype's name.
        device: The device that came to it, such as `CPU:1`.
        group: Key of the devices that meet in it.
        node: Name of the op in its graph.
    """

    kind: str
    tensors: tuple[str, ...]
    shape: str
    dtype: str
    device: str
    group: int
    node: str = ""

    def __str__(self) -> str:
        named = ", ".join(f"'{name}'" for name in self.tensors[:_NAMED])
        more = ", ..." if len(self.tensors) > _NAMED else ""
        of = f" of {named}{more}" if named else ""
        return f"{self.kind}{of} ({self.dtype} {self.shape})"


RECENT: deque[tuple[int, Collective]] = deque(maxlen=KEPT)
"""The last collectives with their numbers; a process has one subject."""


def watch_collectives(note: Callable[[str], None]) -> None:
    """Keep a record of all collectives of this process from now on.

    Args:
        note: Given each one as it begins, in words.
    """
    for kind, name in (("all_reduce", "all_reduce"), ("all_gather", "_all_gather")):
        _watch(kind, name, note)


def give_up() -> None:
    """Have every collective that waits fail; called from another thread."""
    # What has not been started cannot wait, and must not be started here.
    if context.context()._initialized:
        context.context().abort_collective_ops(
            tf.errors.DEADLINE_EXCEEDED, f"{GIVEN_UP}."
        )


def find_wait(error: BaseException) -> Mapping[str, Any] | None:
    """In which collective a task waited that failed, None if in none.

    Returns:
        `words`, `number` (None if it is not known), `node`, `shape`, `shapes` (of all
        devices of this task), and `mismatch` (whether others came to it with another
        shape).
    """
    if not isinstance(error, tf.errors.OpError):
        return None
    text = str(error)
    mismatch = _MISMATCH.search(text)
    late = isinstance(error, tf.errors.DeadlineExceededError)
    if mismatch is None and not (late and "Collective" in text):
        return None
    found = _NODE.search(text) or _TIMED_OUT.search(text)
    node = found["node"] if found else ""
    number, collective = _find_record(node)
    if mismatch is not None:
        number = int(mismatch["number"])
    here = [
        record
        for given, record in RECENT
        if collective and (given, record.group) == (number, collective.group)
    ]
    return {
        "words": _name(number, *here) if here else _name_node(node),
        "number": number,
        "node": node,
        "shape": collective.shape if collective else "",
        "shapes": [record.shape for record in here],
        "mismatch": mismatch is not None,
    }


def _name_node(node: str) -> str:
    # A strategy has workers agree on the first value of a variable by itself.
    unnamed = "a collective without a name, such as that of a variable that is made"
    return f"'{node}'" if node else unnamed


def _find_record(node: str) -> tuple[int | None, Collective | None]:
    """The newest record of a node, which functions put their own names in front of."""
    for number, record in reversed(RECENT):
        if record.node and f"/{node}".endswith(f"/{record.node}"):
            return number, record
    return None, None


def _watch(kind: str, name: str, note: Callable[[str], None]) -> None:
    original = getattr(CollectiveReplicaLauncher, name)
    give_number = CollectiveReplicaLauncher._next_instance_key

    def launch(launcher: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        record = _describe(kind, tensor, launcher)
        launcher._next_instance_key = partial(
            _number, launcher, record, give_number, note
        )
        try:
            result = original(launcher, tensor, *args, **kwargs)
        finally:
            del launcher._next_instance_key
        if not tf.executing_eagerly():
            record.node = result.op.name
        return result

    hide_from_autograph(launch)
    setattr(CollectiveReplicaLauncher, name, launch)


def _number(
    launcher: Any,
    record: Collective,
    give_number: Callable[[Any], Any],
    note: Callable[[str], None],
) -> Any:
    """Give a collective its number; in a graph TensorFlow asks again at each call."""
    outer = vars(launcher).get("_next_instance_key")
    launcher._next_instance_key = partial(_number, launcher, record, give_number, note)
    try:
        number = give_number(launcher)
    finally:
        if outer is None:
            del launcher._next_instance_key
        else:
            launcher._next_instance_key = outer
    if tf.executing_eagerly():
        RECENT.append((int(number), record))
        note(_name(int(number), record))
    return number


def _name(number: int | None, *records: Collective) -> str:
    """A collective, as all devices of this task come to it."""
    each = [f"{r} on {r.device}" if len(records) > 1 else str(r) for r in records]
    return f"collective {number}, {' and '.join(each)}"


def _describe(kind: str, tensor: Any, launcher: Any) -> Collective:
    eager, shape = tf.executing_eagerly(), tf.TensorShape(tensor.shape)
    return Collective(
        kind=kind,
        tensors=() if eager else tuple(_name_sources(tensor)),
        shape=str(shape.as_list()) if shape.rank is not None else "[?]",
        dtype=tf.as_dtype(tensor.dtype).name,
        device=launcher._device.rpartition("device:")[2],
        group=launcher._group_key,
    )


def _name_sources(tensor: Any) -> list[str]:
    """The tensors that a strategy packed into one, in their order."""
    op = tensor.op
    if op.type not in _PACKING:
        return [str(tensor.name)]
    sources = op.inputs[:-1] if op.type == "ConcatV2" else op.inputs[:1]
    return [name for source in sources for name in _name_sources(source)]
