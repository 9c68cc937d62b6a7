"""The commands for one wrong number: `repro` and `shrink`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from distbench.cli.arguments import read_verdict
from distbench.cli.outcome import EXIT_UNDECIDED


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
    from distbench.report.earlier import SCRIPT, check_report
    from distbench.report.files import STDOUT, write_report
    from distbench.repro.case import pick_case
    from distbench.repro.script import write_script

    read = read_verdict(verdict)
    case = pick_case(read, only)
    taken = {"the verdict": verdict}
    if case.target.kind == "file":
        taken["the file of the subject"] = Path(case.target.path)
    check_report(output, SCRIPT, taken)
    text = write_script(case, read.environment)
    write_report(output, text)
    typer.echo(
        f"{output}: shows {case.finding.code} of {case.run.scenario} in "
        f"{len(text.splitlines())} lines; run it with Python.",
        err=output == STDOUT,
    )
    return 0


def shrink(
    verdict: Annotated[
        Path,
        typer.Argument(
            metavar="VERDICT.json", help="What 'distbench check --json' wrote."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Where the smaller verdict goes. [default: VERDICT.small.json]",
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="The scenario to shrink. [default: the first that failed]",
        ),
    ] = None,
    tries: Annotated[
        int, typer.Option(metavar="N", min=1, help="Checks at most.")
    ] = 12,
) -> int:
    """Find the smallest scenario that still shows a finding."""
    from distbench.escape import escape_controls
    from distbench.report.earlier import VERDICT, check_report
    from distbench.report.files import STDOUT, write_report
    from distbench.repro.case import find_target, list_failed, read_scenario
    from distbench.shrink import make_start, name_options, shrink
    from distbench.verdict.document import verdict_to_json

    output = output or verdict.with_suffix(".small.json")
    check_report(output, VERDICT, {"the verdict": verdict})
    read = read_verdict(verdict)
    run = next(list_failed(read, only))
    scenario = read_scenario(read, run)
    wanted = next(finding for finding in run.findings if not finding.warning)
    target = find_target(scenario.target)
    start = make_start(scenario, run)

    from distbench.checking.check import check_target

    smallest = None
    checked = shrink(
        start, wanted, lambda options: check_target(target, options), tries
    )
    try:
        for made in checked:
            typer.echo(
                f"{'shows it' if made.shows else 'does not'}: "
                f"{name_options(made.options)} ({escape_controls(made.why)})",
                err=output == STDOUT,
            )
            smallest = made if made.shows else smallest
    finally:
        # Whoever ends it by Ctrl-C has the smallest one that was found until then.
        if smallest is not None and smallest.verdict is not None:
            write_report(output, verdict_to_json(smallest.verdict) + "\n")
            typer.echo(
                f"{output}: {wanted.code} with {name_options(smallest.options)}.",
                err=output == STDOUT,
            )
    if smallest is None:
        typer.echo(f"{wanted.code} in {wanted.phase} did not come again.", err=True)
        return EXIT_UNDECIDED
    return 0
