"""Settings of optimizers, and those that are others on a cluster than on one device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from distbench.addresses import strip_addresses
from distbench.trace import Trace

Setting = bool | int | float | str | None
Settings = Mapping[str, Setting]
"""By `position.path`: which optimizer, and the path in what it is configured with."""

_NOTE = "settings-"
"""Begins the note of a process; the number of its first replica follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherSetting:
    """A setting that is another one on the cluster.

    Attributes:
        path: See `Settings`.
        seen: What it is there.
        due: What it is on one device.
        replicas: Those that have it so.
    """

    path: str
    seen: Setting
    due: Setting
    replicas: tuple[int, ...]


def note_settings(settings: Settings, first_replica: int = 0) -> dict[str, object]:
    """The note of a process, for the trace that it writes.

    Args:
        settings: Of its optimizers.
        first_replica: The number of its first replica.
    """
    return {f"{_NOTE}{first_replica}": dict(settings)}


def list_other_settings(observed: Trace, reference: Trace) -> tuple[OtherSetting, ...]:
    """The settings that a cluster has otherwise than one device, beyond rounding.

    One that an optimizer does not tell is None. An optimizer of which one side tells
    nothing is left out: it may not be able to, and a trace may be older than this.
    """
    due = _read_note(reference, 0)
    starts = _list_starts(observed)
    found: dict[tuple[str, Setting], list[int]] = {}
    for start, end in zip(starts, [*starts[1:], observed.replicas], strict=False):
        seen = _read_note(observed, start)
        known = _find_positions(seen) & _find_positions(due)
        for path in dict.fromkeys([*due, *seen]):
            setting = seen.get(path)
            if _get_position(path) in known and not are_one(setting, due.get(path)):
                found.setdefault((path, setting), []).extend(range(start, end))
    return tuple(
        OtherSetting(path=path, seen=seen, due=due.get(path), replicas=tuple(replicas))
        for (path, seen), replicas in found.items()
    )


def list_positions(*traces: Trace) -> list[str]:
    """The optimizers of which any trace notes settings, sorted; see `Settings`."""
    noted = [_read_note(trace, r) for trace in traces for r in _list_starts(trace)]
    return sorted({position for one in noted for position in _find_positions(one)})


def _read_note(trace: Trace, first_replica: int) -> Settings:
    noted = trace.notes.get(f"{_NOTE}{first_replica}")
    return noted if isinstance(noted, Mapping) else {}


def _list_starts(trace: Trace) -> list[int]:
    """The first replicas of the processes that noted settings, sorted."""
    notes = (name for name in trace.notes if name.startswith(_NOTE))
    return sorted(int(name.removeprefix(_NOTE)) for name in notes)


def _find_positions(settings: Settings) -> set[str]:
    return set(map(_get_position, settings))


def _get_position(path: str) -> str:
    return path.partition(".")[0]


def are_one(left: Setting, right: Setting) -> bool:
    """Whether two settings are the same.

    But for what a float32 has no room for, and where an object lies in memory.
    """
    if left == right:
        return True
    if isinstance(left, str) and isinstance(right, str):
        return strip_addresses(left) == strip_addresses(right)
    if isinstance(left, float) and isinstance(right, float):
        near = float(np.finfo(np.float32).eps)
        are_nan = math.isnan(left) and math.isnan(right)
        return are_nan or math.isclose(left, right, rel_tol=near)
    return False
