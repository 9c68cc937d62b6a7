"""The commands that only tell: `list`, `explain`, `doctor`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from distbench.cluster import KINDS
from distbench.errors import make_unknown_name_error

if TYPE_CHECKING:
    from rich.console import Console

    from distbench.codes import Code

SECTIONS = ("scenarios", "faults", "codes", "clusters")
_TEXT_WIDTH = 100
SPECS = tuple(
    sorted(
        (text for kind in KINDS.values() for text in kind.shown),
        key=lambda text: text.endswith("@gpu"),
    )
)
"""Clusters that the machine may run, those with GPUs last."""


def list_all(
    section: Annotated[
        str | None,
        typer.Argument(metavar="|".join(f"[{name}]" for name in SECTIONS)),
    ] = None,
) -> int:
    """Show scenarios, faults, codes and usable clusters."""
    if section is not None and section not in SECTIONS:
        raise make_unknown_name_error("Section", section, SECTIONS)
    from distbench.report.table import make_console

    console = make_console()
    wanted = (section,) if section else SECTIONS
    if "scenarios" in wanted:
        from distbench.scenario.choices import PATHS, WORKLOADS

        _print_rows(console, "Workloads (--workload)", WORKLOADS.items())
        _print_rows(console, "Aggregation paths (--path)", PATHS.items())
    if "faults" in wanted:
        from distbench.faults import FAULTS
        from distbench.unusual import UNUSUAL

        rows = ((f.name, f"{f.code}: {f.summary}") for f in FAULTS)
        _print_rows(console, "Seeded faults (selftest --only)", rows)
        rows = ((one.name, one.summary) for one in UNUSUAL)
        _print_rows(console, "Correct but unusual programs (selftest --only)", rows)
    if "codes" in wanted:
        from distbench.codes import FAMILIES

        for family, codes in FAMILIES.items():
            rows = ((code.name, code.signature) for code in codes)
            _print_rows(console, f"Codes of findings: {family}", rows)
    if "clusters" in wanted:
        from distbench.cluster import ClusterSpec
        from distbench.machine import inspect_machine

        machine = inspect_machine()
        lacks = ((spec, machine.find_lack(ClusterSpec.parse(spec))) for spec in SPECS)
        rows = ((spec, lack or "yes") for spec, lack in lacks)
        _print_rows(console, "Clusters on this machine (-c)", rows)
    return 0


def explain(
    code: Annotated[str, typer.Argument(metavar="CODE", help="Such as mean-of-means.")],
) -> int:
    """Say what a finding means and how to fix it."""
    from distbench.codes import find_code
    from distbench.report.table import make_console

    console = make_console()
    console.width = min(console.width, _TEXT_WIDTH)
    _print_code(console, find_code(code.lower()))
    return 0


def doctor() -> int:
    """Say whether this machine can run clusters."""
    from rich.text import Text

    from distbench.doctor import examine_machine
    from distbench.escape import escape_controls
    from distbench.report.table import make_console

    console = make_console()
    ok = True
    for check in examine_machine():
        line = Text("ok  " if check.ok else "NO  ", "green" if check.ok else "bold red")
        line.append(
            escape_controls(f"{check.name:<22} {check.found}"), style="not bold default"
        )
        console.print(line)
        ok = ok and check.ok
    console.print("This machine can run distbench." if ok else "See the lines with NO.")
    return 0 if ok else 3


def _print_rows(console: Console, title: str, rows: Iterable[tuple[str, str]]) -> None:
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True, min_width=26)
    table.add_column()
    for row in rows:
        table.add_row(*row)
    console.print(f"[bold]{title}[/bold]")
    console.print(table)
    console.print()


def _print_code(console: Console, code: Code) -> None:
    from rich.padding import Padding
    from rich.syntax import Syntax
    from rich.text import Text

    console.print(Text(code.name, style="bold"))
    where = ", ".join(code.phases) or "no phase"
    console.print(Text(f"{where}: {code.signature}", style="dim"))
    console.print()
    console.print(Text(code.meaning))
    for title, body in (
        ("Mathematics", code.mathematics),
        ("Typically wrong", code.wrong),
        ("Right", code.right),
        ("To confirm", code.confirm),
        ("To fix", code.fix),
        ("On parameter servers", code.fix_alone),
    ):
        if not body:
            continue
        shown = (
            Syntax(body, "python", theme="ansi_dark", background_color="default")
            if title in ("Typically wrong", "Right")
            else Text(body)
        )
        console.print()
        console.print(Text(title, style="bold"))
        console.print(Padding(shown, (0, 0, 0, 2), expand=False))
