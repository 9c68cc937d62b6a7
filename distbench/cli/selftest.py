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
    random: Annotated[
        int | None,
        typer.Option(
            metavar="COUNT",
            help="Run so many faults that are drawn at random, and the same programs "
            "without them, in place of those that users made.",
        ),
    ] = None,
    from_seed: Annotated[
        int | None,
        typer.Option(metavar="SEED", help="The first of them; 0 by default."),
    ] = None,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the matrix as JSON.")
    ] = None,
) -> int:
    """Run every seeded fault and see whether it is found and named."""
    from distbench.errors import BadInputError
    from distbench.report.earlier import MATRIX, check_report
    from distbench.report.files import STDOUT, write_report
    from distbench.report.table import make_console
    from distbench.selftest.matrix import (
        describe_result,
        render_score,
        score_to_json,
    )
    from distbench.selftest.run import plan_selftest, run_selftest
    from distbench.selftest.score import Cell, Passed

    if json is not None:
        check_report(json, MATRIX, {})
    if random is None and from_seed is not None:
        raise BadInputError("--from-seed goes with --random COUNT.")
    if random is not None:
        if only or cluster:
            raise BadInputError(
                "--random takes neither --only nor --cluster: a seed draws both."
            )
        return _run_random(random, from_seed or 0, json)
    items = plan_selftest(tuple(only or ()), tuple(cluster or ()))

    def tell(result: Cell | Passed, number: int, total: int) -> None:
        typer.echo(f"[{number}/{total}] {describe_result(result)}", err=True)

    score = run_selftest(items, tell)
    if json is not None:
        write_report(json, score_to_json(score) + "\n")
    make_console(stderr=json == STDOUT).print(render_score(score), crop=False)
    return 0 if score.ok else 1


def _run_random(count: int, first: int, json: Path | None) -> int:
    """Run what some seeds give."""
    from distbench.report.files import STDOUT, write_report
    from distbench.report.table import make_console
    from distbench.selftest.drawn import (
        Seeds,
        describe_drawn,
        drawn_to_json,
        plan_drawn,
        render_drawn,
    )
    from distbench.selftest.run import run_selftest
    from distbench.selftest.score import Cell, Passed

    seeds = Seeds(first=first, count=count)

    def tell(result: Cell | Passed, number: int, total: int) -> None:
        typer.echo(f"[{number}/{total}] {describe_drawn(result)}", err=True)

    score = run_selftest(plan_drawn(seeds), tell)
    if json is not None:
        write_report(json, drawn_to_json(score, seeds) + "\n")
    console = make_console(stderr=json == STDOUT)
    console.print(render_drawn(score), crop=False, soft_wrap=True)
    return 0 if score.ok else 1
