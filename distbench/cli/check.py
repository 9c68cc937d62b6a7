"""`distbench check`: run the scenarios and tell what came out."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distbench.cli.arguments import DTYPE, KERAS, SEED, STEPS, TARGET
from distbench.cluster import list_forms
from distbench.engine_names import ENGINES
from distbench.errors import BadInputError

if TYPE_CHECKING:
    from distbench.history.quarantine import Entry
    from distbench.report.forms import Reports
    from distbench.target import TargetRef

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
            help=f"Cluster: {', '.join(list_forms())}, "
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
            help="Tier; may be repeated. [default: bounded, and exact where the "
            "subject can have it]",
        ),
    ] = None,
    steps: Annotated[int | None, STEPS] = None,
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
    loss_weight: Annotated[
        float,
        typer.Option(
            metavar="W",
            help="Factor of the workloads' losses, or of what a program's tapes give.",
        ),
    ] = 1.0,
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
            metavar="KIND",
            help="How the cluster that --restore-from names cuts its variables.",
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
        typer.Option(
            metavar="N",
            help="An error, never skipped, is what takes GPUs where there are N of "
            "them.",
        ),
    ] = 0,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="Deadline of each cluster, in seconds. [default: 120, and up to 600 "
            "while tasks compute]",
        ),
    ] = None,
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
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Check again whenever a file beside TARGET's is saved."
        ),
    ] = False,
    engine: Annotated[
        str,
        typer.Option(metavar="|".join(ENGINES), help="Who starts the processes."),
    ] = "local",
    jobs: Annotated[
        int,
        typer.Option(
            "-j",
            "--jobs",
            metavar="N",
            help="Run so many scenarios at a time, as far as there is room.",
        ),
    ] = 1,
    allow_public: Annotated[
        bool,
        typer.Option(
            "--allow-public", help="Let an engine's nodes have public addresses."
        ),
    ] = False,
    json: Annotated[
        File,
        typer.Option(
            metavar="FILE",
            help="Write the verdict as JSON; - is standard output, and the table then "
            "goes to standard error.",
        ),
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
    from distbench.options import CheckOptions
    from distbench.preloading import begin_imports
    from distbench.report.files import check_folder
    from distbench.report.forms import FORMS, Reports
    from distbench.target import parse_target

    ref = parse_target(target)
    reports = Reports(json=json, html=html, junit=junit, tensorboard=tensorboard)
    shows_numbers = any(FORMS[name].detailed for name in reports.files)
    defaults = CheckOptions()
    options = CheckOptions(
        clusters=tuple(cluster or defaults.clusters),
        paths=tuple(path or defaults.paths),
        tiers=tuple(tier or ()),
        workloads=tuple(workload or ()),
        steps=steps,
        dtype=dtype,
        seed=seed,
        examples=examples,
        loss_weight=loss_weight,
        split=_parse_split(split),
        only=only,
        keras=keras,
        jit=_parse_switch("--jit", jit),
        expect=tuple(expect or ()),
        require_gpus=require_gpus,
        restore_from=restore_from,
        restore_after=restore_after,
        in_flight=in_flight,
        partitioner=partitioner,
        restore_partitioner=restore_partitioner,
        faults=tuple(fault or ()),
        timeout_s=timeout,
        memory_gib=memory_limit,
        engine=engine,
        allow_public=allow_public,
        details=shows_numbers or tensorboard is not None,
        keep=keep,
        jobs=jobs,
    )
    _check_files(reports, ref, quarantine)
    if tensorboard is not None:
        check_folder(tensorboard)
    begin_imports(options)
    # These import most of the bench, while the fork server has begun with TensorFlow.
    from distbench.checking.kept import make_place
    from distbench.cli.checked import check_once

    if keep is not None:
        make_place(keep)
    run = functools.partial(
        check_once,
        ref,
        options,
        known=_read_quarantine(quarantine),
        reports=reports,
    )
    if watch:
        from distbench.cli.watch import check_on_save
        from distbench.launch.spares import Spares

        with Spares() as spares:
            return check_on_save(ref, functools.partial(run, spares=spares), spares)
    return run()


def _check_files(reports: Reports, ref: TargetRef, quarantine: File) -> None:
    """Refuse reports that would take the place of anything but earlier ones."""
    from distbench.report.earlier import check_own_files, check_report
    from distbench.report.forms import FORMS

    taken = {} if quarantine is None else {"the quarantine list": quarantine}
    if ref.kind == "file":
        taken["the file of TARGET"] = Path(ref.path)
    for name, file in reports.files.items():
        check_report(file, FORMS[name].kind, taken)
    check_own_files(reports.files.values())


def _read_quarantine(file: Path | None) -> tuple[Entry, ...]:
    from distbench.history.quarantine import read_quarantine

    return () if file is None else read_quarantine(file)


def _parse_split(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    shares = [share.strip() for share in text.split(",")]
    # Other scripts have digits as well, and whoever wrote one meant something else.
    if not all(share.isascii() and share.isdecimal() for share in shares):
        raise BadInputError(
            "--split must give the number of examples of each replica, such as 5,3. "
            f"Received: {text!r}."
        )
    return tuple(map(int, shares))


def _parse_switch(name: str, text: str | None) -> bool | None:
    if text not in (None, "on", "off"):
        raise BadInputError(f"{name} must be 'on' or 'off'. Received: {text!r}.")
    return None if text is None else text == "on"
