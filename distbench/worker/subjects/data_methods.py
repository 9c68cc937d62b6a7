"""What gives a train program its data."""

from __future__ import annotations

from typing import Any

_METHODS = ("data", "dataset_fn", "dataset")
"""Methods of a program, in the order in which they are looked for."""


def list_data_methods(subject: Any) -> tuple[str, ...]:
    """Those that a program has; the first feeds it.

    One that a class sets to None, in the place of what it inherits, is not there.
    """
    return tuple(name for name in _METHODS if callable(getattr(subject, name, None)))


def describe_values(subject: Any) -> str:
    """What was received in the place of such methods; `""` where there is nothing."""
    found = {name: getattr(subject, name, None) for name in _METHODS}
    values = [
        f"'{name}' that is an object of type '{type(value).__name__}'"
        for name, value in found.items()
        if value is not None
    ]
    if not values:
        return ""
    return f" Received: {' and '.join(values)}, and no method. Return it from one."
