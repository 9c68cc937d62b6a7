"""The Python interface: check one subject."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from distbench.checking.checker import check_target
from distbench.expect import apply_expectations
from distbench.fault import Fault
from distbench.launch.rundir import RunDirectory
from distbench.options import CheckOptions, Progress
from distbench.target import TargetRef, parse_target, write_pickled_target
from distbench.verdict import Verdict


def check(
    subject: object,
    cluster: str | Sequence[str] = "mwms:2",
    *,
    path: str = "default",
    workload: str | None = None,
    tier: str | None = None,
    faults: Iterable[Fault | str] = (),
    expect: str | Sequence[str] = (),
    progress: Progress | None = None,
    **options: Any,
) -> Verdict:
    """Check a subject on one cluster, or on one after the other.

    Args:
        subject: An optimizer factory or a train program; a lambda or a local class
            will do. A text is a TARGET such as `package.module:attribute`.
        cluster: A cluster spec, or several: those with as many replicas share the
            single-device run that they are judged by.
        path: The aggregation path.
        workload: The workload for an optimizer; None takes the default ones.
        tier: The tier; None takes the default ones.
        faults: What befalls tasks and replicas, and when; see `distbench.Fault`.
        expect: The finding code that is meant to be found, or several.
        progress: Who wants to know how far it is.
        **options: Further fields of `distbench.options.CheckOptions`.

    Returns:
        The verdict; `verdict.raise_for_status()` fails a test with the diagnosis.

    Raises:
        BadInputError: The subject or an option cannot be used; names the thing.
    """
    if workload is not None:
        options["workloads"] = (workload,)
    if tier is not None:
        options["tiers"] = (tier,)
    options["faults"] = tuple(map(str, faults))
    options["expect"] = (expect,) if isinstance(expect, str) else tuple(expect)
    clusters = (cluster,) if isinstance(cluster, str) else tuple(cluster)
    chosen = CheckOptions(clusters=clusters, paths=(path,), **options)
    if isinstance(subject, TargetRef):
        verdict = check_target(subject, chosen, progress)
    elif isinstance(subject, str):
        verdict = check_target(parse_target(subject), chosen, progress)
    else:
        with RunDirectory() as directory:
            target = write_pickled_target(subject, directory.path)
            verdict = check_target(target, chosen, progress)
    return apply_expectations(verdict, chosen.expect)
