"""`distbench bisect`: which phase of a step another version changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distbench.cli.arguments import DTYPE, KERAS, PATH, SEED, STEPS, TARGET, WORKLOAD
from distbench.cli.outcome import EXIT_UNDECIDED
from distbench.errors import BadInputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from distbench.environments import Environment, Ran
    from distbench.verdict import Finding

_DEADLINE_S = 600.0
Text = str | None


def bisect(
    target: Annotated[str, TARGET],
    good: Annotated[
        Path,
        typer.Option(metavar="ENV", help="A virtual environment, or its Python."),
    ],
    bad: Annotated[Path, typer.Option(metavar="ENV", help="The other one.")],
    cluster: Annotated[
        str, typer.Option("-c", "--cluster", metavar="SPEC", help="Cluster.")
    ] = "mwms:2",
    path: Annotated[str, PATH] = "default",
    workload: Annotated[Text, WORKLOAD] = None,
    tier: Annotated[
        str, typer.Option(metavar="exact|bounded|free", help="Tier.")
    ] = "bounded",
    steps: Annotated[int | None, STEPS] = None,
    dtype: Annotated[str, DTYPE] = "float32",
    seed: Annotated[int, SEED] = 1,
    keras: Annotated[Text, KERAS] = None,
    rows: Annotated[
        int, typer.Option(metavar="N", min=0, help="Places to list at most.")
    ] = 5,
    timeout: Annotated[
        float,
        typer.Option(metavar="S", help="Deadline under each of them, in seconds."),
    ] = _DEADLINE_S,
) -> int:
    """Run one scenario under two environments and tell where they first differ.

    Exit codes: 0 alike, 1 not alike, 2 bad usage, 3 error of the cluster or machine,
    4 nothing was compared.
    """
    from distbench.environments import check_under, find_environment
    from distbench.launch.rundir import RunDirectory
    from distbench.report.table import make_console

    pair = {"good": find_environment(good), "bad": find_environment(bad)}
    words = [target, "-c", cluster, "--path", path, "--tier", tier, "--dtype", dtype]
    words += ["--seed", str(seed)]
    words += [] if steps is None else ["--steps", str(steps)]
    words += [] if workload is None else ["--workload", workload]
    words += [] if keras is None else ["--keras", keras]
    ran: dict[str, Ran] = {}
    with RunDirectory() as folder:
        for name, environment in pair.items():
            typer.echo(f"{name}: {environment.place} ...", err=True)
            place = folder.make_folder(name)
            ran[name] = check_under(environment, words, place, timeout)
    console = make_console()
    for line in _describe(pair, ran):
        console.print(line, crop=False)
    if not any(one.traces or one.verdict.findings for one in ran.values()):
        for reason in _list_reasons(ran):
            console.print(f"Nothing was compared: {reason}", crop=False, markup=False)
        return EXIT_UNDECIDED
    parts, alike = _compare(ran, rows)
    told = [*_tell_other_findings(ran), *_tell_other_ends(ran)]
    for part in (*parts, *told):
        console.print(part, crop=False)
    return 0 if alike and not told else 1


def _describe(
    pair: dict[str, Environment], ran: dict[str, Ran]
) -> Iterator[RenderableType]:
    from rich.text import Text

    from distbench.environments import list_changes
    from distbench.escape import escape_controls
    from distbench.report.table import STYLES
    from distbench.report.words import join_words

    for name, environment in pair.items():
        verdict = ran[name].verdict
        line = Text(f"{name:5}{escape_controls(str(environment.place))}  ")
        line.append(str(verdict.status), STYLES[verdict.status])
        codes = dict.fromkeys(f.code for run in verdict.runs for f in run.findings)
        yield line.append(f" {join_words(codes)}" if codes else "")
    changes = list_changes(pair["good"], pair["bad"])
    told = join_words(changes) if changes else "nothing"
    yield Text(escape_controls(f"in another version: {told}"))


def _compare(ran: dict[str, Ran], rows: int) -> tuple[list[RenderableType], bool]:
    """What the two runs have in common on one device, then on the cluster."""
    from rich.text import Text

    from distbench.compare.recorded.offline import compare_traces
    from distbench.compare.recorded.reductions import describe_first
    from distbench.report.traces import render_comparison

    good, bad = ran["good"].traces, ran["bad"].traces
    if not (shared := good.keys() & bad.keys()):
        words = "A run that ends early has no numbers to compare."
        return [Text(), Text(words)], True
    parts: list[RenderableType] = []
    alike = True
    for key in sorted(shared):
        for name in ("reference", "observed"):
            a, b = bad[key][name], good[key][name]
            comparison = compare_traces(a, b)
            if not comparison.places:
                raise BadInputError(f"Nothing in common was recorded of {key[0]}.")
            where = "one device" if name == "reference" else "the cluster"
            parts += [Text(), Text(f"{key[0]} on {where}, A bad, B good", "bold")]
            reduced = describe_first(a, b, comparison)
            parts.append(
                render_comparison(a, b, comparison, reduced=reduced, rows=rows)
            )
            alike = alike and comparison.first is None
    return parts, alike


def _list_reasons(ran: dict[str, Ran]) -> list[str]:
    from distbench.escape import escape_controls

    runs = [run for one in ran.values() for run in one.verdict.runs]
    return [
        escape_controls(text) for text in dict.fromkeys(run.message for run in runs)
    ]


def _tell_other_findings(ran: dict[str, Ran]) -> list[RenderableType]:
    """What the check under one of them found, and under the other did not.

    A check measures its noise and has narrower bounds than two traces that are held
    against each other: what it tells apart is no rounding, whatever those say.
    """
    from rich.text import Text

    from distbench.escape import escape_controls

    found = {name: _list_failures(one) for name, one in ran.items()}
    parts: list[RenderableType] = []
    for name, other in (("good", "bad"), ("bad", "good")):
        for key, finding in found[name].items():
            if key not in found[other]:
                told = f"Found under {name} and not under {other}, in {key[0]}: "
                told += escape_controls(finding.explanation)
                parts += [Text(), Text(told)]
    return parts


def _tell_other_ends(ran: dict[str, Ran]) -> Iterator[RenderableType]:
    """What was run under one of them, and not run or refused under the other."""
    from rich.text import Text

    from distbench.escape import escape_controls

    ends = {name: _list_ends(one) for name, one in ran.items()}
    for key in {**ends["good"], **ends["bad"]}:
        good, bad = (ends[name].get(key, "not run") for name in ("good", "bad"))
        if good != bad:
            told = f"Of {' '.join(key)} good is {good}, and bad {bad}"
            yield Text()
            yield Text(escape_controls(told))


def _list_ends(ran: Ran) -> dict[tuple[str, str], str]:
    """How runs ended: nothing is told apart of those that were executed."""
    from distbench.verdict import NOT_EXECUTED

    runs = {(run.scenario, run.tier): run for run in ran.verdict.runs}
    return {
        key: str(run.status) if run.status in NOT_EXECUTED else "executed"
        for key, run in runs.items()
    }


def _list_failures(ran: Ran) -> dict[tuple[str, str, str], Finding]:
    return {
        (run.scenario, run.tier, finding.code): finding
        for run in reversed(ran.verdict.runs)
        for finding in reversed(run.findings)
        if not finding.warning
    }
