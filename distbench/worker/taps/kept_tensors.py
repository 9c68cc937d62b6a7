"""Tensors that a step keeps on an object, which the replicas of a process share.

They are traced by turns: at a merge call, such as apply_gradients or all_reduce, each
waits until all have come so far. What one kept before it, the last one has overwritten.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import tensorflow as tf

from distbench.worker.state.reachable import find_held, get_attributes
from distbench.worker.taps.backwards import is_eager
from distbench.worker.taps.exchange import is_made_of
from distbench.worker.taps.seen import Seen

_FRAMEWORKS = ("tensorflow", "tf_keras", "keras")
_OF_THEIRS = ("_call_result",)
"""Attributes that a framework itself keeps on objects of the user's classes: what the
`result` of a metric has given."""


def list_kept_tensors(root: Any, seen: Seen) -> tuple[str, ...]:
    """Attributes in which a step keeps what replicas make of their batches.

    Of objects of the user's classes alone; nothing where each replica has a process of
    its own.

    Args:
        root: What holds all that the step uses.
        seen: What the replicas of this process were traced with.
    """
    if len(seen.given) < 2:
        return ()
    given = list(chain(*seen.given.values()))
    kept: dict[str, list[Any]] = {}
    for item in find_held(root, _is_of_user):
        for name, value in get_attributes(item).items():
            if name in _OF_THEIRS:
                continue
            kept.setdefault(name, []).extend(_list_traced(value))
    return tuple(n for n, found in kept.items() if found and is_made_of(found, given))


def _is_of_user(item: Any) -> bool:
    return type(item).__module__.partition(".")[0] not in _FRAMEWORKS


def _list_traced(value: Any) -> Iterator[Any]:
    """The tensors of a graph that an attribute holds: it, or those in a list."""
    for item in value if type(value) in (list, tuple) else (value,):
        if isinstance(item, tf.Tensor) and not is_eager(item):
            yield item
