"""Write docs/reference/json-fields.md from what the classes of a verdict say of fields.

Run it after a change of one: `python scripts/write_json_fields.py`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from distbench.scenario import Scenario
from distbench.verdict import Finding, Outcome, Run, Verdict, Worst

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "json-fields.md"
_HEAD = """\
<!-- Written by scripts/write_json_fields.py from the classes of a verdict. -->

# Fields of a verdict's JSON

What they mean, and the types that they have in Python. A tuple is a list, and None is
`null`; [JSON of a verdict](json.md) says what holds for all of them. A verdict has
`schema` and `status` besides, and the `setup` of a run `resized`.
"""
_PARTS = (
    ("A verdict", Verdict, ()),
    ("A run", Run, ("details",)),
    ("`setup` of a run", Scenario, ("workload", "cluster", "path")),
    ("`worst` of a run", Worst, ()),
    ("A finding", Finding, ()),
    ("`outcome` of a finding", Outcome, ()),
)
"""Headings, with the class that each is of and what of that is not written."""
_FIELD = re.compile(r"^(\w+): (.*)")


def make_page() -> str:
    """The text of the page."""
    return "\n".join([_HEAD, *_list_parts()])


def _list_parts() -> Iterator[str]:
    for heading, cls, left_out in _PARTS:
        told = _read_fields(cls)
        yield f"## {heading}"
        yield ""
        yield "| field | type | |"
        yield "|---|---|---|"
        for field in fields(cls):
            if field.name not in left_out:
                kind = str(field.type).replace("|", "\\|")
                yield f"| `{field.name}` | `{kind}` | {told.get(field.name, '')} |"
        yield ""


def _read_fields(cls: type) -> dict[str, str]:
    """What a class says of its attributes, each in one line."""
    _, _, text = inspect.cleandoc(cls.__doc__ or "").partition("Attributes:\n")
    found: dict[str, str] = {}
    name = ""
    for line in inspect.cleandoc(text).splitlines():
        if begin := _FIELD.match(line):
            name = begin[1]
            found[name] = begin[2]
        elif name and line.strip():
            found[name] += f" {line.strip()}"
    return {name: words.replace("|", "\\|") for name, words in found.items()}


if __name__ == "__main__":
    PAGE.write_text(make_page(), encoding="utf-8")
