"""The settings that optimizers tell of themselves.

What an optimizer keeps in a variable is state, which is compared as such.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from distbench.trace.settings import Setting
from distbench.worker.families import find_family, name_family
from distbench.worker.state.ancestry import list_ancestry
from distbench.worker.state.components import is_variable
from distbench.worker.state.reachable import get_attributes

_BESIDE = frozenset({"name", "jit_compile"})
"""How something is called or compiled is nothing of what it computes."""
CONTAINERS = (list, tuple, Mapping)
_MISSING = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A setting that an optimizer tells.

    Attributes:
        value: What it is.
        owner: What may keep it: the optimizer, or what it holds, such as a schedule.
        keys: Its place in what the owner tells, from the outermost one.
    """

    value: Setting
    owner: Any
    keys: tuple[Any, ...]


def read_settings(optimizers: Sequence[Any]) -> dict[str, Setting]:
    """What optimizers are configured with: single values, as they are now.

    Of an optimizer in another one it is told once, as its own. What raises, or is no
    value, is left out.

    Args:
        optimizers: All that a subject has.
    """
    return {path: told.value for path, told in list_told(optimizers).items()}


def list_told(optimizers: Sequence[Any]) -> dict[str, Told]:
    """The same with who may keep them; see `read_settings`."""
    found: dict[str, Told] = {}
    for position, optimizer in enumerate(optimizers):
        # A user's get_config may raise anything, and leave by sys.exit.
        with suppress(Exception, SystemExit):
            with _keep_uncalled(optimizer):
                config = find_family(optimizer).read_config(type(optimizer), optimizer)
            found.update(_list_in(config, optimizer, (), str(position)))
    return found


@contextmanager
def _keep_uncalled(optimizer: Any) -> Iterator[None]:
    """Inside, an optimizer tells the functions in its table, and calls none.

    A rate that is a function may count its calls, or take the next of some numbers: it
    is to be called by steps alone. OptimizerV2 calls all that is no schedule.
    """
    table = _get_table(optimizer)
    functions = {
        name: held
        for name, held in table.items()
        if callable(held) and not is_variable(held) and not _is_schedule(held)
    }
    try:
        table.update({n: partial(_give, held) for n, held in functions.items()})
        yield
    finally:
        table.update(functions)


def _give(held: Any) -> Any:
    return held


def _is_schedule(held: Any) -> bool:
    return any(n.endswith(".LearningRateSchedule") for n in list_ancestry(held))


def _list_in(
    config: Mapping[Any, Any], owner: Any, keys: tuple[Any, ...], begin: str
) -> Iterator[tuple[str, Told]]:
    """The settings in a configuration, by path.

    Args:
        config: The configuration.
        owner: What is configured with it.
        keys: Where the configuration is in that of the owner.
        begin: Of their paths.
    """
    for name, given in config.items():
        path, held = f"{begin}.{name}", get_held(owner, str(name))
        if name in _BESIDE or name_family(held) is not None:
            continue
        if isinstance(given, (list, tuple)):
            given = dict(enumerate(given))
        if isinstance(given, Mapping):
            # Numbers in a list have no other owner than the list has.
            is_owner = held is not None and not isinstance(held, CONTAINERS)
            below = (held, ()) if is_owner else (owner, (*keys, name))
            yield from _list_in(given, *below, path)
        elif not _is_state(owner, str(name)):
            value = read_value(given)
            if value is not _MISSING:
                yield path, Told(value=value, owner=owner, keys=(*keys, name))


def read_value(given: Any) -> Any:
    """A single value as Python's own; `_MISSING` if it is something else."""
    if isinstance(given, tf.Tensor) and hasattr(given, "numpy"):
        given = given.numpy()
    if isinstance(given, (np.generic, np.ndarray)) and np.ndim(given) == 0:
        given = given.item()
    is_value = given is None or isinstance(given, (bool, int, float, str))
    return given if is_value else _MISSING


def _is_state(holder: Any, name: str) -> bool:
    """Whether a holder keeps a setting in a variable, or will as soon as it has any.

    OptimizerV2 has a table of those.
    """
    return name in _get_table(holder) or is_variable(get_held(holder, name))


def _get_table(holder: Any) -> Any:
    table = get_attributes(holder).get("_hyper")
    return table if isinstance(table, dict) else {}


def get_held(holder: Any, name: str) -> Any:
    """What a holder has under a name, or beneath it, as `_name`; None if nothing.

    A property may make something else of what is beneath it, and comes last.
    """
    held = get_attributes(holder)
    for known in (name, f"_{name}"):
        for one in (held, _get_table(holder)):
            if known in one:
                return one[known]
    return getattr(holder, name, None)
