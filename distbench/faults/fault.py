"""A seeded fault: a mistake in user code, and what has to be said of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from distbench.cluster import ClusterSpec
from distbench.codes import find_code
from distbench.errors import BadInputError
from distbench.samples.name import make_name, read_summary
from distbench.trace import PHASES

EVERYWHERE = ("mirrored:2", "mwms:2")
WIDE = ("mirrored:2", "mwms:4")
"""For mistakes whose ratio depends on N: with two replicas many ratios coincide."""

Subject = TypeVar("Subject")
_REFERENCE = re.compile(r"[\w.-]+/[\w.-]+#\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One mistake.

    Attributes:
        name: Name on the command line.
        code: Finding code that it must get.
        phase: Phase in which it must be found.
        variables: Paths of all variables that it concerns; `("",)` for the loss.
        replicas: Replicas that it concerns, by number of replicas; negative numbers
            count from the last; None for whichever show it.
        clusters: Cluster specs that expose it.
        like: The real bug that it is modelled on, as `owner/repo#N`.
        target: The subject, as `package.module:attribute`.
        summary: What is wrong, in a sentence.
        workload: Workload of an optimizer; None for a program.
        in_flight: Steps that are scheduled before they are waited for.
        warning: Whether it is told by a warning and passes.
    """

    name: str
    code: str
    phase: str
    variables: tuple[str, ...]
    clusters: tuple[str, ...]
    like: str
    target: str
    summary: str
    replicas: tuple[int, ...] | None = None
    workload: str | None = None
    in_flight: int = 1
    warning: bool = False

    def __post_init__(self) -> None:
        find_code(self.code)
        if self.phase not in (*PHASES, "build", "first step"):
            raise BadInputError(
                f"Fault '{self.name}': unknown phase. Expected one of "
                f"{', '.join(PHASES)}. Received: {self.phase!r}."
            )
        if not _REFERENCE.fullmatch(self.like):
            raise BadInputError(
                f"Fault '{self.name}': the real bug must be named as owner/repo#N. "
                f"Received: {self.like!r}."
            )
        for cluster in self.clusters:
            ClusterSpec.parse(cluster)

    def list_replicas(self, cluster: str) -> tuple[int, ...] | None:
        """The replicas that it concerns on a cluster, in order."""
        if self.replicas is None:
            return None
        count = ClusterSpec.parse(cluster).replicas
        return tuple(sorted(r % count for r in self.replicas))


REGISTERED: list[Fault] = []
"""In the order of definition; `distbench.faults.FAULTS` is complete."""


def fault(
    code: str,
    phase: str,
    variables: tuple[str, ...] = ("",),
    *,
    like: str,
    clusters: tuple[str, ...] = EVERYWHERE,
    replicas: tuple[int, ...] | None = None,
    workload: str | None = None,
    in_flight: int = 1,
    warning: bool = False,
) -> Callable[[Subject], Subject]:
    """Register a program or an optimizer factory as a fault; see `Fault`."""

    def register(subject: Subject) -> Subject:
        name = str(getattr(subject, "__name__", ""))
        REGISTERED.append(
            Fault(
                name=make_name(name),
                code=code,
                phase=phase,
                variables=variables,
                replicas=replicas,
                clusters=clusters,
                like=like,
                target=f"{subject.__module__}:{name}",
                summary=read_summary(subject),
                workload=workload,
                in_flight=in_flight,
                warning=warning,
            )
        )
        return subject

    return register
