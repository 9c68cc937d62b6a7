"""The commands over many nights: `history` and `compare`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distbench.cli.arguments import read_verdict
from distbench.cli.outcome import EXIT_UNDECIDED
from distbench.errors import BadInputError

EXIT_WORSE = 1
DEFAULT_FILE = Path("nights/history.sqlite")

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from distbench.history.limits import Limits
    from distbench.history.night import Night
    from distbench.history.store import History

File = Annotated[
    Path,
    typer.Option(
        metavar="FILE",
        envvar="DISTBENCH_HISTORY",
        help="The history, one SQLite file.",
    ),
]
ErrorRatio = Annotated[
    float,
    typer.Option(metavar="X", help="Growth of error / bound that is told."),
]
TimeRatio = Annotated[
    float, typer.Option(metavar="X", help="Growth of seconds that is told.")
]
Floor = Annotated[
    float,
    typer.Option(metavar="S", help="Seconds by which a time has to grow at least."),
]


def history(
    pattern: Annotated[
        str | None,
        typer.Argument(
            metavar="[PATTERN]",
            help="Scenarios to show one by one, such as 'linear-adam-*'; * and ? stand "
            "for others. [default: the nights, and what moved in the last one]",
        ),
    ] = None,
    file: File = DEFAULT_FILE,
    last: Annotated[
        int, typer.Option("--last", metavar="N", help="Nights to look at.")
    ] = 20,
    least: Annotated[
        int,
        typer.Option(metavar="N", help="Earlier runs without which nothing is said."),
    ] = 5,
    error_ratio: ErrorRatio = 2.0,
    time_ratio: TimeRatio = 1.5,
    floor: Floor = 0.5,
    spread: Annotated[
        float,
        typer.Option(
            metavar="S",
            help="How far a drift lies beyond the noise, in standard deviations.",
        ),
    ] = 3.0,
    confirm: Annotated[
        int, typer.Option(metavar="N", help="Last runs that all have to be slow.")
    ] = 2,
    flaky: Annotated[
        str, typer.Option(metavar="FROM,TO", help="Percent of failures of a flaky one.")
    ] = "5,95",
    add: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="VERDICT.json",
            help="Append what 'distbench check --json' wrote first; may be repeated.",
        ),
    ] = None,
) -> int:
    """Show how scenarios did over the last nights."""
    from distbench.history.limits import Limits
    from distbench.history.store import History
    from distbench.report.table import make_console

    limits = Limits(
        window=last,
        least=least,
        error_ratio=error_ratio,
        time_ratio=time_ratio,
        floor_s=floor,
        spread=spread,
        confirm=confirm,
        flaky=_parse_shares(flaky),
    )
    store = History(file)
    _add(store, add or ())
    nights = store.list_nights(last)
    console = make_console()
    if pattern is None:
        _show_nights(console, nights, limits)
    else:
        _show_scenarios(console, nights, pattern, file)
    return 0


def compare(
    before: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="A verdict's JSON file, or a night of the history: its number, "
            "'previous' or 'last'.",
        ),
    ],
    now: Annotated[str, typer.Argument(metavar="B", help="What is held against it.")],
    file: File = DEFAULT_FILE,
    error_ratio: ErrorRatio = 2.0,
    time_ratio: TimeRatio = 1.5,
    floor: Floor = 0.5,
) -> int:
    """Say what changed between two runs; 1 if worse, 4 if they share no scenario."""
    from distbench.history.changes import compare_nights
    from distbench.history.limits import Limits
    from distbench.history.store import History
    from distbench.report.nights import render_comparison
    from distbench.report.table import make_console

    limits = Limits(error_ratio=error_ratio, time_ratio=time_ratio, floor_s=floor)
    store = History(file)
    comparison = compare_nights(
        _find_night(before, store), _find_night(now, store), limits
    )
    console = make_console()
    for line in render_comparison(comparison):
        console.print(line, soft_wrap=True)
    if not comparison.common:
        return EXIT_UNDECIDED
    return EXIT_WORSE if comparison.is_worse else 0


def _add(store: History, files: Sequence[Path]) -> None:
    from distbench.history.night import make_night

    # All are read before the first is kept: half of a list would be added twice.
    nights = [(file, make_night(read_verdict(file))) for file in files]
    for file, night in nights:
        earlier = store.find_copy(night)
        if earlier is None:
            typer.echo(f"{file}: night {store.add(night)}")
        else:
            typer.echo(f"{file}: night {earlier} already, and not added again")


def _find_night(name: str, store: History) -> Night:
    from distbench.history.night import make_night

    if name in ("last", "previous"):
        nights = store.list_nights(2)
        place = 1 if name == "last" else 2
        if len(nights) < place:
            raise BadInputError(
                f"The history has no {name} night. It has {len(nights)}."
            )
        return nights[-place]
    if name.isdecimal() and not Path(name).exists():
        return store.read_night(int(name))
    return make_night(read_verdict(Path(name)))


def _show_nights(console: Console, nights: Sequence[Night], limits: Limits) -> None:
    from distbench.history.drift import find_drifts, find_flaky
    from distbench.report.nights import (
        render_drifts,
        render_flaky,
        render_nights,
        render_quarantined,
    )

    console.print(render_nights(nights))
    if not nights:
        return
    alike = [night for night in nights if night.machine == nights[-1].machine]
    lines = [
        *render_drifts(find_drifts(alike, limits)),
        *render_flaky(find_flaky(alike, limits)),
        *render_quarantined(nights[-1]),
    ]
    for line in lines:
        console.print(line, soft_wrap=True)
    if not lines:
        console.print(f"Nothing moved in night {nights[-1].id}.")


def _show_scenarios(
    console: Console, nights: Sequence[Night], pattern: str, file: Path
) -> None:
    from distbench.history.pattern import fits
    from distbench.report.nights import render_scenario

    keys = dict.fromkeys(row.key for night in nights for row in night.rows)
    wanted = [key for key in keys if fits(pattern, key.scenario)]
    if not wanted:
        some = ", ".join(dict.fromkeys(key.scenario for key in list(keys)[:5]))
        raise BadInputError(
            f"No scenario of '{file}' fits {pattern!r}. There is: {some or 'none'}."
        )
    for key in wanted:
        console.print(render_scenario(key, nights))


def _parse_shares(text: str) -> tuple[float, float]:
    try:
        lowest, highest = (float(part) for part in text.split(","))
    except ValueError:
        lowest = highest = math.nan
    if not 0 <= lowest <= highest <= 100:
        raise BadInputError(
            "--flaky must be two numbers of percent such as 5,95, the lower one first. "
            f"Received: {text!r}."
        )
    return lowest / 100, highest / 100
