"""The commands for one wrong number: `repro`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distbench.errors import BadInputError

if TYPE_CHECKING:
    from distbench.verdict import Verdict


def repro(
    verdict: Annotated[
        Path,
        typer.Argument(
            metavar="VERDICT.json", help="What 'distbench check --json' wrote."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="FILE", help="Where the script goes."),
    ],
    only: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="The scenario to show. [default: the first that failed]"
        ),
    ] = None,
) -> int:
    """Write a script that shows a finding with TensorFlow and NumPy alone."""
    from distbench.report.files import check_place, write_report
    from distbench.repro.case import pick_case
    from distbench.repro.script import write_script

    check_place(output)
    read = read_verdict(verdict)
    case = pick_case(read, only)
    text = write_script(case, read.environment)
    write_report(output, text)
    typer.echo(
        f"{output}: shows {case.finding.code} of {case.run.scenario} in "
        f"{len(text.splitlines())} lines; run it with Python."
    )
    return 0


def read_verdict(path: Path) -> Verdict:
    """The verdict in a file.

    Raises:
        BadInputError: It cannot be read, or is no verdict.
    """
    from distbench.verdict import verdict_from_json

    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(
            f"'{path}' cannot be read: {error}. Expected the JSON that "
            "'distbench check --json FILE' writes."
        ) from error
    try:
        return verdict_from_json(text)
    except BadInputError as error:
        raise BadInputError(f"'{path}': {error}") from error
