"""Write docs/reference/command-line.md from what the commands say of themselves.

Run it after a change of distbench/cli: `python scripts/write_command_line.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from distbench.cli import app

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "command-line.md"
_HEAD = """\
<!-- Written by scripts/write_command_line.py from distbench/cli. -->

# Command line

`distbench COMMAND --help` prints the same. Exit codes are those of [a
check](../reports.md) unless a command says otherwise.
"""


def make_page() -> str:
    """The text of the page."""
    group: Any = typer.main.get_command(app)
    return "\n".join([_HEAD, *_list_commands(group, "distbench")])


def _list_commands(group: Any, name: str) -> Iterator[str]:
    for command in group.commands.values():
        words = f"{name} {command.name}"
        if hasattr(command, "commands"):
            yield from _list_commands(command, words)
        else:
            yield from _describe(command, words)


def _describe(command: Any, words: str) -> Iterator[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    names = [_name(argument) for argument in arguments]
    yield f"## {words}"
    yield ""
    yield f"`{' '.join([words, *names, '[OPTIONS]' if options else '']).strip()}`"
    yield ""
    yield from (line.strip() for line in command.help.strip().splitlines())
    yield ""
    rows = [(_name(argument), argument) for argument in arguments]
    for option in options:
        metavar = f" {option.metavar}" if option.metavar else ""
        rows.append((f"{', '.join(option.opts)}{metavar}", option))
    if rows:
        yield "| | |"
        yield "|---|---|"
        yield from (f"| `{_escape(name)}` | {_tell(param)} |" for name, param in rows)
        yield ""


def _name(argument: Any) -> str:
    name = str(argument.metavar or argument.name.upper())
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _tell(param: Any) -> str:
    text = getattr(param, "help", None) or ""
    default = param.default
    shown = type(default) in (int, float, str) and "[default" not in text
    return _escape(f"{text} [default: {default}]" if shown else text)


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(make_page(), "utf-8")
