"""A correct but unusual program, which must pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from distbench.cluster import ClusterSpec
from distbench.samples.name import make_name, read_summary

EVERYWHERE = ("mirrored:2", "mwms:2")

Subject = TypeVar("Subject")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusual:
    """One correct program.

    Attributes:
        name: Name on the command line.
        clusters: Cluster specs on which it must pass.
        target: The subject, as `package.module:attribute`.
        summary: What is unusual, in a sentence.
        workload: Workload of an optimizer; None for a program.
        in_flight: Steps that are scheduled before they are waited for.
    """

    name: str
    clusters: tuple[str, ...]
    target: str
    summary: str
    workload: str | None = None
    in_flight: int = 1

    def __post_init__(self) -> None:
        for cluster in self.clusters:
            ClusterSpec.parse(cluster)


REGISTERED: list[Unusual] = []
"""In the order of definition; `distbench.unusual.UNUSUAL` is complete."""


def unusual(
    *,
    clusters: tuple[str, ...] = EVERYWHERE,
    workload: str | None = None,
    in_flight: int = 1,
) -> Callable[[Subject], Subject]:
    """Register a program or an optimizer factory; see `Unusual`."""

    def register(subject: Subject) -> Subject:
        name = str(getattr(subject, "__name__", ""))
        REGISTERED.append(
            Unusual(
                name=make_name(name),
                clusters=clusters,
                target=f"{subject.__module__}:{name}",
                summary=read_summary(subject),
                workload=workload,
                in_flight=in_flight,
            )
        )
        return subject

    return register
