"""What to call a sample, and what to say of it."""

from __future__ import annotations

import re


def make_name(identifier: str) -> str:
    """The name on the command line of a class: words joined by hyphens."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", identifier).lower()


def read_summary(subject: object) -> str:
    """The first sentence of its docstring, in one line."""
    text = (getattr(subject, "__doc__", None) or "").strip()
    return " ".join(text.partition("\n\n")[0].split())
