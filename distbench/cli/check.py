"""`distbench check`: run the scenarios and tell what came out."""

from __future__ import annotations

import datetime
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distbench.cli.arguments import DTYPE, KERAS, SEED, STEPS, TARGET
from distbench.errors import BadInputError

if TYPE_CHECKING:
    from distbench.history.quarantine import Entry
    from distbench.options import CheckOptions
    from distbench.verdict import Verdict

Names = list[str] | None
Text = str | None
File = Path | None


def check(
    target: Annotated[str, TARGET],
    cluster: Annotated[
        Names,
        typer.Option(
            "-c",
            "--cluster",
            metavar="SPEC",
            help="Cluster: one, mirrored:R, central:R, mwms:W, mwms:WxR, ps:W+P, "
            "each with @gpu or @cpu if wanted; may be repeated. "
            "[default: mirrored:2, mwms:2]",
        ),
    ] = None,
    path: Annotated[
        Names,
        typer.Option(
            metavar="PATH", help="Aggregation path; may be repeated. [default: default]"
        ),
    ] = None,
    tier: Annotated[
        Names,
        typer.Option(
            metavar="exact|bounded|free",
            help="Tier; may be repeated. [default: exact, bounded]",
        ),
    ] = None,
    steps: Annotated[int, STEPS] = 3,
    workload: Annotated[
        Names,
        typer.Option(
            metavar="NAME", help="Workload for an optimizer; may be repeated."
        ),
    ] = None,
    dtype: Annotated[str, DTYPE] = "float32",
    seed: Annotated[int, SEED] = 1,
    examples: Annotated[
        int,
        typer.Option(
            metavar="G", help="Size of a workload's global batch; 0: the bench's own."
        ),
    ] = 0,
    split: Annotated[
        Text,
        typer.Option(
            metavar="N,…",
            help="Examples of each replica; one may get none: 5,3 or 8,0.",
        ),
    ] = None,
    only: Annotated[
        Text, typer.Option(metavar="ID", help="Run this one scenario.")
    ] = None,
    keras: Annotated[Text, KERAS] = None,
    jit: Annotated[
        Text, typer.Option(metavar="on|off", help="Compile the step with XLA.")
    ] = None,
    restore_from: Annotated[
        Text,
        typer.Option(
            metavar="SPEC",
            help="Train on this cluster first, save a checkpoint, and go on from it.",
        ),
    ] = None,
    restore_after: Annotated[
        int,
        typer.Option(
            metavar="K",
            help="Restore over what K steps have trained, and not before the slots "
            "exist.",
        ),
    ] = 0,
    in_flight: Annotated[
        int,
        typer.Option(
            metavar="K",
            help="Under ps, schedule K steps before waiting for them; --steps then "
            "counts how often.",
        ),
    ] = 1,
    partitioner: Annotated[
        Text,
        typer.Option(
            metavar="KIND",
            help="Under ps, cut variables into shards: fixed:2, min:BYTES:SHARDS or "
            "max:BYTES.",
        ),
    ] = None,
    restore_partitioner: Annotated[
        Text,
        typer.Option(
            metavar="KIND", help="The same of the cluster that --restore-from names."
        ),
    ] = None,
    fault: Annotated[
        Names,
        typer.Option(
            metavar="FAULT",
            help="What befalls a task or replica at a step: kill:worker:1@2, "
            "delay=0.5:ps:0@1, drop:replica:1@2, nan:replica:1@2; may be repeated.",
        ),
    ] = None,
    expect: Annotated[
        Names,
        typer.Option(
            metavar="CODE",
            help="A finding that is meant: it passes alone; may be repeated.",
        ),
    ] = None,
    quarantine: Annotated[
        File,
        typer.Option(
            metavar="FILE", help="Known failures, which are shown and do not count."
        ),
    ] = None,
    require_gpus: Annotated[
        int,
        typer.Option(metavar="N", help="Fail where fewer GPUs are there, never skip."),
    ] = 0,
    timeout: Annotated[
        float, typer.Option(metavar="S", help="Deadline of each cluster, in seconds.")
    ] = 120.0,
    memory_limit: Annotated[
        float | None,
        typer.Option(
            metavar="GIB", help="Memory that each task may take; else what is free."
        ),
    ] = None,
    keep: Annotated[
        File,
        typer.Option(
            metavar="DIR", help="Keep the traces there, for 'distbench trace'."
        ),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(metavar="local|slurm|ray", help="Who starts the processes."),
    ] = "local",
    json: Annotated[
        File, typer.Option(metavar="FILE", help="Write the verdict as JSON.")
    ] = None,
    html: Annotated[
        File, typer.Option(metavar="FILE", help="Write the report as an HTML page.")
    ] = None,
    junit: Annotated[
        File, typer.Option(metavar="FILE", help="Write the runs as JUnit XML.")
    ] = None,
    tensorboard: Annotated[
        File,
        typer.Option(
            metavar="DIR",
            help="Write each replica's losses, norms and errors for TensorBoard.",
        ),
    ] = None,
) -> int:
    """Train with TARGET on real clusters and compare with one device."""
    from distbench.checking.kept import make_place
    from distbench.options import CheckOptions
    from distbench.report.files import check_folder, check_place
    from distbench.target import parse_target

    ref = parse_target(target)
    defaults = CheckOptions()
    options = CheckOptions(
        clusters=_distinct(cluster) or defaults.clusters,
        paths=_distinct(path) or defaults.paths,
        tiers=_distinct(tier) or defaults.tiers,
        workloads=_distinct(workload),
        steps=steps,
        dtype=dtype,
        seed=seed,
        examples=examples,
        split=_parse_split(split),
        only=only,
        keras=keras,
        jit=_parse_switch("--jit", jit),
        expect=_distinct(expect),
        require_gpus=require_gpus,
        restore_from=restore_from,
        restore_after=restore_after,
        in_flight=in_flight,
        partitioner=partitioner,
        restore_partitioner=restore_partitioner,
        faults=_distinct(fault),
        timeout_s=timeout,
        memory_gib=memory_limit,
        engine=engine,
        details=html is not None or tensorboard is not None,
        keep=keep,
    )
    for file in (json, html, junit):
        if file is not None:
            check_place(file)
    if tensorboard is not None:
        check_folder(tensorboard)
    if keep is not None:
        make_place(keep)
    known = _read_quarantine(quarantine)

    from distbench.checking.checker import check_target
    from distbench.escape import escape_controls
    from distbench.expect import apply_expectations
    from distbench.history.quarantine import apply_quarantine
    from distbench.report.progress import make_progress
    from distbench.report.table import make_console
    from distbench.verdict import Status

    with make_progress(make_console(stderr=True)) as progress:
        verdict = check_target(ref, options, progress)
    verdict = apply_expectations(verdict, options.expect)
    quarantined = apply_quarantine(
        verdict, known, datetime.date.today(), is_whole=False
    )
    verdict = quarantined.verdict
    _write_reports(verdict, options, json=json, html=html, junit=junit)
    _print_report(verdict, options, quarantined.remarks)
    if tensorboard is not None:
        from distbench.summaries import write_summaries

        write_summaries(verdict, options, tensorboard)
    if json is not None and verdict.status is Status.FAIL:
        # What cannot be shown so, the commands say themselves.
        for what, words in (
            ("A script that shows it", ["repro", str(json), "-o", "shown.py"]),
            ("A prompt at the value", ["debug", str(json)]),
        ):
            line = shlex.join(["distbench", *words])
            typer.echo(f"{what}: {escape_controls(line)}")
    return verdict.exit_code


def _print_report(
    verdict: Verdict, options: CheckOptions, remarks: tuple[str, ...]
) -> None:
    from distbench.report.nights import render_remarks
    from distbench.report.table import make_console, render_verdict

    console = make_console()
    console.print(render_verdict(verdict, options), crop=False)
    for line in render_remarks(remarks):
        console.print(line)


def _read_quarantine(file: Path | None) -> tuple[Entry, ...]:
    from distbench.history.quarantine import read_quarantine

    return () if file is None else read_quarantine(file)


def _write_reports(
    verdict: Verdict,
    options: CheckOptions,
    *,
    json: Path | None,
    html: Path | None,
    junit: Path | None,
) -> None:
    from distbench.report.files import write_report
    from distbench.report.junit import verdict_to_junit
    from distbench.report.page import verdict_to_html
    from distbench.verdict import verdict_to_json

    if json:
        write_report(json, verdict_to_json(verdict) + "\n")
    if html:
        write_report(html, verdict_to_html(verdict, options))
    if junit:
        write_report(junit, verdict_to_junit(verdict))


def _distinct(values: list[str] | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values or ()))


def _parse_split(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    shares = [share.strip() for share in text.split(",")]
    if not all(share.isdecimal() for share in shares):
        raise BadInputError(
            "--split must give the number of examples of each replica, such as 5,3. "
            f"Received: {text!r}."
        )
    return tuple(map(int, shares))


def _parse_switch(name: str, text: str | None) -> bool | None:
    if text not in (None, "on", "off"):
        raise BadInputError(f"{name} must be 'on' or 'off'. Received: {text!r}.")
    return None if text is None else text == "on"
