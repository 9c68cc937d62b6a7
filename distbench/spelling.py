"""What an option is called where the user gave it.

The same check is asked for on a command line, from Python and by a test suite. Messages
have an option's field, `timeout_s`, go through here, so that each names what was typed:
`--timeout` in a shell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_OPTION = "--"
_spell: ContextVar[Callable[[str], str]] = ContextVar("spell", default=str)


@contextmanager
def spelled(by: Callable[[str], str]) -> Iterator[None]:
    """Have messages name options as an interface does.

    Args:
        by: Gives the name of an option for that of its field.
    """
    before = _spell.set(by)
    try:
        yield
    finally:
        _spell.reset(before)


def spell(field: str) -> str:
    """What the user calls an option: `--in-flight`, `in_flight`."""
    return _spell.get()(field)


def spell_given(field: str, value: object) -> str:
    """An option with its value, as it is given: `--split 4,4`, `split=(4, 4)`."""
    name = spell(field)
    if not name.startswith(_OPTION):
        return f"{name}={value!r}"
    if isinstance(value, bool):
        value = "on" if value else "off"
    if isinstance(value, tuple):
        value = ",".join(map(str, value))
    return f"{name} {value}"


def spell_options(others: Mapping[str, str]) -> Callable[[str], str]:
    """How a command line calls its options.

    Args:
        others: Names, by field, that do not follow from the field's.
    """

    def by(field: str) -> str:
        plain = field.removesuffix("_s").replace("_", "-")
        return others.get(field, f"{_OPTION}{plain}")

    return by
