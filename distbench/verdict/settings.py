"""What a verdict says of where it came out, as one list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def list_settings(environment: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What an environment says, as names and texts: `machine.cores`."""
    for name, value in environment.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{part}", text) for part, text in list_settings(value))
        elif isinstance(value, (list, tuple)):
            yield str(name), ", ".join(map(str, value)) or "-"
        elif value is not None:
            yield str(name), str(value)
