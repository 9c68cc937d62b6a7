"""Which ops draw random numbers."""

from __future__ import annotations

import re

_DRAWS = re.compile(
    r"Random(?!.*(Get|Seed|Dataset|Queue))|Multinomial|TruncatedNormal"
    r"|^Stateful(StandardNormal|Uniform)|^StatelessShuffle$"
)


def is_drawing(op: str) -> bool:
    """Whether ops of a type draw, and do not only make a key or move a generator on."""
    return _DRAWS.search(op) is not None
