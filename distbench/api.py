"""The Python interface: check one subject."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from distbench.checking.check import check_target
from distbench.errors import make_unknown_name_error
from distbench.fault import Fault
from distbench.launch.rundir import RunDirectory
from distbench.launch.spares import SPARES, Spares
from distbench.options import CheckOptions, Progress
from distbench.spelling import spelled
from distbench.target import TargetRef, parse_target, write_pickled_target
from distbench.typed import check_kind, list_given, list_texts
from distbench.verdict import Verdict

_NAMES = {
    "clusters": "cluster",
    "paths": "path",
    "workloads": "workload",
    "tiers": "tier",
}
"""Fields of the options whose arguments take one thing as well as several."""


def check(
    subject: object,
    cluster: str | Sequence[str] = "mwms:2",
    *,
    path: str | Sequence[str] = "default",
    workload: str | Sequence[str] | None = None,
    tier: str | Sequence[str] | None = None,
    faults: Fault | str | Iterable[Fault | str] = (),
    expect: str | Sequence[str] = (),
    progress: Progress | None = None,
    spares: Spares | None = None,
    **options: Any,
) -> Verdict:
    """Check a subject on one cluster, or on one after the other.

    Args:
        subject: An optimizer factory or a train program; a lambda or a local class
            will do. A text is a TARGET such as `package.module:attribute`.
        cluster: A cluster spec, or several: those with as many replicas share the
            single-device run that they are judged by.
        path: The aggregation path, or several.
        workload: The workload for an optimizer, or several; None takes the default
            ones.
        tier: The tier, or several; None takes the default ones.
        faults: What befalls tasks and replicas, and when; see `distbench.Fault`.
        expect: The finding code that is meant to be found, or several.
        progress: Who wants to know how far it is.
        spares: Has tasks of this machine that wait; see `distbench.Spares`.
        **options: Further fields of `distbench.options.CheckOptions`.

    Returns:
        The verdict; `verdict.raise_for_status()` fails a test with the diagnosis.

    Raises:
        BadInputError: The subject or an option cannot be used; names the thing.
    """
    known = {field.name for field in fields(CheckOptions)} - {"clusters", "paths"}
    for name in options.keys() - known:
        names = {*map(_name, known), "cluster", "path"}
        raise make_unknown_name_error("Option", name, sorted(names))
    if workload is not None:
        options["workloads"] = list_texts("workload", workload)
    if tier is not None:
        options["tiers"] = list_texts("tier", tier)
    check_kind("spares", spares, Spares, SPARES)
    with spelled(_name):
        chosen = CheckOptions(
            clusters=list_texts("cluster", cluster),
            paths=list_texts("path", path),
            faults=tuple(
                str(fault) if isinstance(fault, Fault) else fault
                for fault in list_given(faults)
            ),
            expect=list_texts("expect", expect),
            **options,
        )
    if isinstance(subject, TargetRef):
        return check_target(subject, chosen, progress, spares)
    if isinstance(subject, str):
        return check_target(parse_target(subject), chosen, progress, spares)
    with RunDirectory() as directory:
        target = write_pickled_target(subject, directory.path)
        return check_target(target, chosen, progress, spares)


def _name(field: str) -> str:
    """The argument that an option's field is given by."""
    return _NAMES.get(field, field)
