"""`distbench selftest`: does the bench find what it must find?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Names = list[str] | None


def selftest(
    only: Annotated[
        Names,
        typer.Option(
            metavar="NAME",
            help="Run this fault or correct program, or all faults of a code; may be "
            "repeated.",
        ),
    ] = None,
    cluster: Annotated[
        Names,
        typer.Option(
            "-c",
            "--cluster",
            metavar="SPEC",
            help="Run on these clusters alone; may be repeated.",
        ),
    ] = None,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the matrix as JSON.")
    ] = None,
) -> int:
    """Run every seeded fault and see whether it is found and named."""
    from distbench.report.files import check_place, write_report
    from distbench.report.table import make_console
    from distbench.selftest.matrix import (
        describe_result,
        render_score,
        score_to_json,
    )
    from distbench.selftest.run import plan_selftest, run_selftest
    from distbench.selftest.score import Cell, Passed

    if json is not None:
        check_place(json)
    items = plan_selftest(tuple(only or ()), tuple(cluster or ()))

    def tell(result: Cell | Passed, number: int, total: int) -> None:
        typer.echo(f"[{number}/{total}] {describe_result(result)}", err=True)

    score = run_selftest(items, tell)
    if json is not None:
        write_report(json, score_to_json(score) + "\n")
    make_console().print(render_score(score), crop=False)
    return 0 if score.ok else 1
