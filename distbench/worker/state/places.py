"""Where an object holds its variables, as names for those that have none."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from distbench.worker.state.components import is_variable, list_shards
from distbench.worker.state.reachable import get_attributes, walk

_NAMELESS = re.compile(r"(.*/)?Variable(/part_\d+)?")
"""What TensorFlow calls a variable that is given no name, and a shard of one."""


def name_nameless(root: Any) -> Mapping[int, str]:
    """Names for variables that were made without: `weights/0` of `self.weights`.

    Args:
        root: What holds them: in attributes, lists and dictionaries, of objects that it
            holds in such as well. Of several places the nearest one counts.

    Returns:
        By the identity of a variable, or of each shard of one.
    """
    places = {id(root): ""}

    def list_placed(item: Any) -> Iterator[Any]:
        for name, child in _list(item):
            places.setdefault(id(child), f"{places[id(item)]}/{name}".strip("/"))
            yield child

    found: dict[int, str] = {}
    for item in filter(is_variable, walk(root, list_placed)):
        if place := places[id(item)]:
            parts = filter(_is_nameless, list_shards([item]))
            found.update(dict.fromkeys(map(id, parts), place))
    return found


def _list(item: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(item, Mapping):
        for number, (key, child) in enumerate(item.items()):
            yield str(key if isinstance(key, (str, int)) else number), child
    elif isinstance(item, (list, tuple, deque)):
        yield from ((str(number), child) for number, child in enumerate(item))
    else:
        yield from get_attributes(item).items()


def _is_nameless(variable: Any) -> bool:
    name = str(getattr(variable, "name", "")).partition(":")[0]
    return _NAMELESS.fullmatch(name) is not None
