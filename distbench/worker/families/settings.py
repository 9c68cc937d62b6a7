"""The settings that optimizers tell of themselves: read, and set to others for a while.

What an optimizer keeps in a variable is state, which is compared as such.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import tensorflow as tf

from distbench.trace.settings import Setting, Settings
from distbench.worker.families import find_family, name_family
from distbench.worker.state.components import is_variable
from distbench.worker.state.reachable import get_attributes

_BESIDE = frozenset({"name", "jit_compile"})
"""How something is called or compiled is nothing of what it computes."""
_MISSING = object()


def read_settings(optimizers: Sequence[Any]) -> dict[str, Setting]:
    """What optimizers are configured with: single values, as they are now.

    Of an optimizer in another one it is told once, as its own. What raises, or is no
    value, is left out.

    Args:
        optimizers: All that a subject has.
    """
    found: dict[str, Setting] = {}
    for position, optimizer in enumerate(optimizers):
        with suppress(Exception):  # a user's get_config may raise anything
            family = find_family(optimizer)
            config = family.read_config(type(optimizer), optimizer)
            found.update(_list_settings(config, optimizer, str(position)))
    return found


@contextmanager
def change_settings(
    optimizers: Sequence[Any], settings: Settings
) -> Iterator[frozenset[str]]:
    """Inside, optimizers have other settings, as far as they take them later.

    A step that was traced before goes by the old ones.

    Args:
        optimizers: All that a subject has.
        settings: The others, by path.

    Yields:
        Paths of those that they have taken, as they tell themselves.
    """
    changed: list[tuple[Any, str, Any, dict[str, Any]]] = []
    try:
        for path, value in settings.items():
            with suppress(Exception):  # a property may refuse what is assigned
                holder, name = _find_holder(optimizers, path)
                changed.append((holder, name, getattr(holder, name), {**vars(holder)}))
                setattr(holder, name, value)
        told = read_settings(optimizers)
        yield frozenset(p for p in settings if told.get(p) == settings[p])
    finally:
        for holder, name, given, held in reversed(changed):
            with suppress(Exception):
                setattr(holder, name, given)
            # A property may keep something else than what it gives.
            vars(holder).update(held)


def _list_settings(
    config: Mapping[Any, Any], holder: Any, begin: str
) -> Iterator[tuple[str, Setting]]:
    """The settings in a configuration, by path.

    Args:
        config: The configuration.
        holder: What is configured with it, or holds that under the last of the path.
        begin: Of their paths.
    """
    for name, given in config.items():
        path, held = f"{begin}.{name}", _get_held(holder, str(name))
        if name in _BESIDE or name_family(held) is not None:
            continue
        if isinstance(given, (list, tuple)):
            given = dict(enumerate(given))
        if isinstance(given, Mapping):
            below = holder if held is None else held
            yield from _list_settings(given, below, path)
        elif not _is_state(holder, str(name)):
            value = _read_value(given)
            if value is not _MISSING:
                yield path, value


def _read_value(given: Any) -> Any:
    """A single value as Python's own; `_MISSING` if it is something else."""
    if isinstance(given, tf.Tensor):
        given = given.numpy()
    if isinstance(given, (np.generic, np.ndarray)) and np.ndim(given) == 0:
        given = given.item()
    is_value = given is None or isinstance(given, (bool, int, float, str))
    return given if is_value else _MISSING


def _is_state(holder: Any, name: str) -> bool:
    """Whether a holder keeps a setting in a variable, or will as soon as it has any.

    OptimizerV2 has a table of those.
    """
    table = get_attributes(holder).get("_hyper")
    in_table = isinstance(table, Mapping) and name in table
    return in_table or is_variable(_get_held(holder, name))


def _get_held(holder: Any, name: str) -> Any:
    """What a holder has under a name, or beneath it, as `_name`; None if nothing.

    A property may make something else of what is beneath it, and comes last.
    """
    held = get_attributes(holder)
    table = held.get("_hyper")
    tables = (held, table if isinstance(table, Mapping) else {})
    for known in (name, f"_{name}"):
        for one in tables:
            if known in one:
                return one[known]
    return getattr(holder, name, None)


def _find_holder(optimizers: Sequence[Any], path: str) -> tuple[Any, str]:
    """What has a setting, and the attribute that it is there."""
    position, *parents, name = path.split(".")
    holder = optimizers[int(position)]
    for parent in parents:
        below = _get_held(holder, parent)
        holder = holder if below is None else below
    return holder, name if hasattr(holder, name) else f"_{name}"
