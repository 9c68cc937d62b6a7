"""`distbench trace`: what a recorded run holds, and how two of them differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distbench.errors import BadInputError, make_unknown_name_error

if TYPE_CHECKING:
    from distbench.trace import Selection, Trace

Folder = Annotated[Path, typer.Argument(help="A folder that holds one trace.")]
Step = Annotated[
    int | None, typer.Option(metavar="N", help="This step; -1 is before the first.")
]
Phase = Annotated[str | None, typer.Option(metavar="NAME", help="This phase.")]
Variable = Annotated[
    str | None, typer.Option(metavar="PATH", help="This variable; its end will do.")
]
Replica = Annotated[
    int | None, typer.Option(metavar="N", help="This replica; -1 is one device.")
]
NARROW = ("float16", "bfloat16")


def show(
    folder: Folder,
    step: Step = None,
    phase: Phase = None,
    variable: Variable = None,
    replica: Replica = None,
) -> int:
    """List the arrays of a trace; print one in full if only one is left."""
    from distbench.report.table import make_console
    from distbench.report.traces import render_trace, render_value
    from distbench.trace.folder import read_folder

    trace = read_folder(folder)
    selection = _select([trace], step, phase, variable, replica)
    values = [(key, value) for key, value in trace.select() if selection.has(key)]
    if not values:
        _check_parts({folder: trace}, selection)
        raise _make_empty(folder)
    console = make_console()
    console.print(render_trace(trace, values, console.width), crop=False)
    if len(values) == 1:
        console.print()
        console.print(render_value(*values[0]), crop=False)
    return 0


def diff(
    a: Folder,
    b: Folder,
    step: Step = None,
    phase: Phase = None,
    variable: Variable = None,
    replica: Replica = None,
    bits: Annotated[
        bool, typer.Option("--bits", help="Any bit that differs is a difference.")
    ] = False,
    narrow: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(NARROW),
            help="In what the steps computed, if it is narrower than the variables.",
        ),
    ] = None,
    rows: Annotated[
        int, typer.Option(metavar="N", min=0, help="Places to list at most.")
    ] = 20,
) -> int:
    """Compare two traces; exit code 0 if they are alike, 1 if not."""
    from distbench.compare.recorded.offline import compare_traces
    from distbench.compare.recorded.reductions import describe_first
    from distbench.report.table import make_console
    from distbench.report.traces import render_comparison
    from distbench.trace.folder import read_folder

    if narrow is not None and narrow not in NARROW:
        raise make_unknown_name_error("Dtype", narrow, NARROW)
    runs = {"A": read_folder(a), "B": read_folder(b)}
    selection = _select(list(runs.values()), step, phase, variable, replica)
    comparison = compare_traces(runs["A"], runs["B"], selection, narrow)
    if not comparison.places:
        _check_parts({a: runs["A"], b: runs["B"]}, selection)
        raise BadInputError(
            f"'{a}' and '{b}' have nothing in common that was asked for. Expected: at "
            "least one step that both recorded. 'distbench trace show' lists what is "
            "there."
        )
    reduced = describe_first(runs["A"], runs["B"], comparison)
    console = make_console()
    told = render_comparison(
        runs["A"],
        runs["B"],
        comparison,
        reduced=reduced,
        rows=rows,
        width=console.width,
    )
    console.print(told, crop=False)
    if bits and any(place.status != "equal" for place in comparison.places):
        return 1
    return 0 if comparison.first is None else 1


def _select(
    traces: list[Trace],
    step: int | None,
    phase: str | None,
    variable: str | None,
    replica: int | None,
) -> Selection:
    """What the options ask for; names that no trace knows are refused."""
    from distbench.trace import PHASES, Selection

    if phase is not None and phase not in PHASES:
        raise make_unknown_name_error("Phase", phase, PHASES)
    if variable is not None:
        variable = _find_variable(traces, variable)
    return Selection(step=step, phase=phase, variable=variable, replica=replica)


def _find_variable(traces: list[Trace], text: str) -> str:
    paths = dict.fromkeys(key.variable for t in traces for key in t.values)
    if text in paths:
        return text
    ends = [path for path in paths if f"/{path}".endswith(f"/{text}")]
    if len(ends) == 1:
        return ends[0]
    if ends:
        raise BadInputError(
            f"Variable {text!r} may be any of {', '.join(ends)}. Name one of them."
        )
    raise make_unknown_name_error("Variable", text, filter(None, paths))


def _check_parts(runs: Mapping[Path, Trace], selection: Selection) -> None:
    """Refuse a step, phase, variable or replica of which a trace has nothing.

    Raises:
        BadInputError: It names the first one, and what there is.
    """
    for folder, trace in runs.items():
        for field in fields(selection):
            part, wanted = field.name, getattr(selection, field.name)
            held = {getattr(key, part) for key in trace.values}
            if wanted is not None and wanted not in held:
                raise BadInputError(
                    f"'{folder}' has no {part} {wanted}. Expected one of the {part}s "
                    f"{_list_held(held)}."
                )


def _list_held(held: set[int] | set[str]) -> str:
    """`0 to 3`, or the words themselves."""
    from distbench.report.words import join_words

    # What is there before the first step, and of all replicas, has a negative number.
    numbers = sorted(n for n in held if isinstance(n, int) and n >= 0)
    if len(numbers) > 1 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]} to {numbers[-1]}"
    words = sorted(word for word in held if isinstance(word, str))
    return join_words([*map(str, numbers), *words])


def _make_empty(folder: Path) -> BadInputError:
    return BadInputError(
        f"'{folder}' has no value of all that was asked for together. "
        f"'distbench trace show {folder}' lists what is there."
    )
