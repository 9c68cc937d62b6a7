"""`distbench debug`: a prompt at one value of one replica's step."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distbench.cli.arguments import DTYPE, KERAS, PATH, SEED, WORKLOAD, read_verdict
from distbench.cluster import spell_kinds
from distbench.errors import BadInputError

if TYPE_CHECKING:
    from distbench.options import CheckOptions
    from distbench.stop import Stop
    from distbench.target import TargetRef

_DEADLINE_S = 3600.0
_LISTED = 12

Text = str | None
Number = int | None


def debug(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET|VERDICT.json",
            help="What is checked, or what 'distbench check --json' wrote of it: then "
            "it stops where the first finding is.",
        ),
    ],
    cluster: Annotated[
        Text,
        typer.Option(
            "-c",
            "--cluster",
            metavar="SPEC",
            help=f"{spell_kinds(lambda kind: not kind.scheduled)}. [default: mwms:2]",
        ),
    ] = None,
    step: Annotated[
        Number, typer.Option(metavar="S", help="Step, from 0. [default: 0]")
    ] = None,
    phase: Annotated[
        Text,
        typer.Option(
            metavar="P",
            help="loss, local_gradient, reduced_gradient, applied_gradient, slot, "
            "variable or iterations. [default: local_gradient]",
        ),
    ] = None,
    replica: Annotated[
        Number, typer.Option(metavar="R", help="Replica, from 0. [default: 0]")
    ] = None,
    variable: Annotated[
        Text,
        typer.Option(
            metavar="NAME", help="Its path, or the end of it. [default: each]"
        ),
    ] = None,
    path: Annotated[Text, PATH] = None,
    workload: Annotated[Text, WORKLOAD] = None,
    dtype: Annotated[Text, DTYPE] = None,
    seed: Annotated[Number, SEED] = None,
    keras: Annotated[Text, KERAS] = None,
    only: Annotated[
        Text,
        typer.Option(
            metavar="ID",
            help="This one scenario. [default: the first that can be stopped]",
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="S", help="Deadline of the whole, in seconds.")
    ] = _DEADLINE_S,
) -> int:
    """Stop in pdb where a value of a replica's step comes by.

    The step runs as Python, op by op, from the state that one device has. At the prompt
    'tap' is the value beside that of one device, and 'c' goes on.
    """
    from distbench.cli.stops import pick_stop
    from distbench.options import CheckOptions
    from distbench.stop import Stop
    from distbench.target import parse_target

    if target.endswith(".json"):
        ref, options, stop = pick_stop(read_verdict(Path(target)), only)
    else:
        ref, options, stop = parse_target(target), CheckOptions(), Stop()
        options = replace(options, clusters=("mwms:2",), only=only)
    options = replace(
        options,
        tiers=("bounded",),
        timeout_s=timeout,
        **_select(
            clusters=cluster and (cluster,),
            paths=path and (path,),
            workloads=workload and (workload,),
            dtype=dtype,
            seed=seed,
            keras=keras,
        ),
    )
    stop = replace(
        stop, **_select(step=step, phase=phase, replica=replica, variable=variable)
    )
    return _stop(ref, options, stop)


def _stop(target: TargetRef, options: CheckOptions, stop: Stop) -> int:
    from distbench.checking.debugging import debug_target
    from distbench.escape import escape_controls
    from distbench.report.words import join_words

    stopped = debug_target(target, options, stop, (sys.stdin, sys.stdout))
    if stopped.left or stopped.stops:
        return 0
    names = [f"{p} of '{v}'" if v else p for p, v in stopped.seen]
    more = [f"{len(names) - _LISTED} more"] if len(names) > _LISTED else []
    wanted = f"{stop.phase} of '{stop.variable}'" if stop.variable else stop.phase
    raise BadInputError(
        escape_controls(
            f"No value came by: step {stop.step}, {wanted}, replica {stop.replica}. "
            f"Expected one of {join_words([*names[:_LISTED], *more]) or 'nothing'}."
        )
    )


def _select(**given: object) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}
