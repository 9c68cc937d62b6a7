"""Optimizers that are set to other settings for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from distbench.trace.settings import Setting, Settings, are_one
from distbench.worker.families.settings import (
    CONTAINERS,
    Told,
    list_told,
    read_settings,
    read_value,
)
from distbench.worker.state.reachable import get_attributes


@dataclass(frozen=True, slots=True)
class _Kept:
    """What an owner of settings was, and has been made of it.

    Attributes:
        owner: It.
        name: The attribute that is set.
        given: What that gave.
        held: All that the owner had.
        made: Attributes that were not there, and that its setter has made.
    """

    owner: Any
    name: str
    given: Any
    held: Mapping[str, Any]
    made: set[str] = field(default_factory=set)


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
    told, changed = list_told(optimizers), list[_Kept]()
    try:
        for together in _group({p: told[p] for p in settings if p in told}):
            changed.extend(_change(optimizers, together, settings))
        yield _list_taken(optimizers, settings)
    finally:
        for kept in reversed(changed):
            _put_back(kept)


def _list_taken(optimizers: Sequence[Any], settings: Settings) -> frozenset[str]:
    told = read_settings(optimizers)
    return frozenset(
        path
        for path, value in settings.items()
        if path in told and are_one(told[path], value)
    )


def _group(told: Mapping[str, Told]) -> Iterator[Mapping[str, Told]]:
    """Settings by where they are told: those of a list, maybe thousands, together."""
    groups: dict[tuple[int, tuple[Any, ...]], dict[str, Told]] = {}
    for path, each in told.items():
        is_item = isinstance(each.keys[-1], int)
        place = id(each.owner), each.keys[:-1] if is_item else each.keys
        groups.setdefault(place, {})[path] = each
    yield from groups.values()


def _change(
    optimizers: Sequence[Any], together: Mapping[str, Told], settings: Settings
) -> Sequence[_Kept]:
    """Set the attribute that settings are told from; none where nobody knows which.

    What is kept under another name is known by what the optimizer tells after that.
    """
    wanted = {path: settings[path] for path in together}
    first = next(iter(together.values()))
    owner = first.owner
    for name, keys in _list_places(first):
        with suppress(Exception):  # there may be no such attribute, or a method
            given, held = getattr(owner, name), {**get_attributes(owner)}
            kept = _Kept(owner, name, given, held)
            # A property may refuse what is assigned.
            with suppress(Exception):
                changed = given
                for path, told in together.items():
                    place = (*keys[:-1], told.keys[-1]) if keys else ()
                    changed = _replace(changed, place, wanted[path])
                setattr(owner, name, changed)
            kept.made.update(get_attributes(owner).keys() - held.keys())
            if _list_taken(optimizers, wanted) == wanted.keys():
                return [kept]
            _put_back(kept)
    return []


def _put_back(kept: _Kept) -> None:
    with suppress(Exception):
        setattr(kept.owner, kept.name, kept.given)
    now = get_attributes(kept.owner)
    for name in kept.made:
        now.pop(name, None)
    # A property may keep something else than what it gives.
    now.update(kept.held)


def _list_places(told: Told) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Attributes that may keep a setting, and the place in each; likely ones first."""
    parts = [told.keys[number:] for number in range(len(told.keys))]
    named = [
        (name, keys) for first, *keys in parts for name in (str(first), f"_{first}")
    ]
    others = [
        (name, keys)
        for _, *keys in parts
        for name, held in get_attributes(told.owner).items()
        if _keeps(held, keys, told.value)
    ]
    yield from dict.fromkeys((n, tuple(k)) for n, k in (*named, *others))


def _keeps(held: Any, keys: Sequence[Any], value: Setting) -> bool:
    for key in keys:
        is_list = isinstance(held, (list, tuple))
        known = (
            range(len(held)) if is_list else held if isinstance(held, Mapping) else ()
        )
        if key not in known:
            return False
        held = held[key]
    found = read_value(held)
    return type(found) is type(value) and found == value


def _replace(held: Any, keys: Sequence[Any], value: Setting) -> Any:
    """What is held with another value in one place: a copy, as others may hold it."""
    if not keys:
        return value
    first, *rest = keys
    if isinstance(held, Mapping):
        return {**held, first: _replace(held[first], rest, value)}
    if not isinstance(held, CONTAINERS):
        raise TypeError(f"Nothing is replaced in a {type(held).__name__}.")
    items = list(held)
    items[first] = _replace(items[first], rest, value)
    return items if isinstance(held, list) else tuple(items)
