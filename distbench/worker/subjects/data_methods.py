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
