"""Cluster specs: which tasks a run consists of, and how many replicas they hold."""

from __future__ import annotations

import dataclasses
import difflib
import re
from dataclasses import dataclass
from typing import Literal

from distbench.errors import BadInputError, find_near, suggest

Kind = Literal["one", "mirrored", "central", "mwms", "ps"]
Device = Literal["cpu", "gpu"]
Role = Literal["worker", "chief", "ps"]

GRAMMAR = (
    "one | mirrored:R | central:R | mwms:W | mwms:WxR | ps:W+P, "
    "each with @cpu or @gpu behind it if wanted; a number may be 'all'"
)
_COUNT = r"[1-9][0-9]{0,3}"
_MOST = 9999
_NUMBER = rf"(?:{_COUNT}|all)"
_ANY_NUMBER = r"-?[0-9]+"
_PATTERNS: dict[str, re.Pattern[str]] = {
    "one": re.compile(r"one"),
    "mirrored": re.compile(rf"mirrored:(?P<replicas>{_NUMBER})"),
    "central": re.compile(rf"central:(?P<replicas>{_NUMBER})"),
    "mwms": re.compile(rf"mwms:(?P<workers>{_NUMBER})(?:x(?P<replicas>{_NUMBER}))?"),
    "ps": re.compile(rf"ps:(?P<workers>{_NUMBER})\+(?P<servers>{_NUMBER})"),
}
_SHAPES = ("one", "mirrored:#", "central:#", "mwms:#", "mwms:#x#", "ps:#+#")

ALL = 0
"""Stands for the word `all` in a spec until `ClusterSpec.resolve` replaces it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One process of a cluster."""

    role: Role
    index: int

    def __str__(self) -> str:
        return f"{self.role}-{self.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """A parsed cluster spec.

    Attributes:
        kind: Which strategy the cluster trains with.
        workers: Number of worker tasks; 1 for `one`, `mirrored` and `central`.
        replicas_per_worker: Devices that each worker trains on.
        parameter_servers: Number of parameter server tasks; 0 but for `ps`.
        device: `cpu`, `gpu`, or None where the spec leaves the choice to the bench.
    """

    kind: Kind
    workers: int = 1
    replicas_per_worker: int = 1
    parameter_servers: int = 0
    device: Device | None = None

    def __post_init__(self) -> None:
        if (
            self.kind == "mwms"
            and self.device == "cpu"
            and self.replicas_per_worker > 1
        ):
            meant = [dataclasses.replace(self, device="gpu")]
            count = self.workers * self.replicas_per_worker  # of 'all' it is 'all'
            if count <= _MOST:
                one = dataclasses.replace(self, workers=count, replicas_per_worker=1)
                meant.insert(0, one)
            raise BadInputError(
                f"Cluster spec '{self}': MultiWorkerMirroredStrategy gives a CPU "
                f"worker one device, so several replicas per worker need GPUs. "
                f"Use {' or '.join(map(repr, map(str, meant)))}."
            )

    @classmethod
    def parse(cls, text: str) -> ClusterSpec:
        """Parse a spec such as `mwms:2` or `mirrored:all@gpu`.

        Raises:
            BadInputError: The text is not a spec; the message gives the grammar and
                the nearest valid spec.
        """
        body, at, device = text.strip().partition("@")
        if not at or device in ("cpu", "gpu"):
            for kind, pattern in _PATTERNS.items():
                if match := pattern.fullmatch(body):
                    parts = match.groupdict()
                    return cls(
                        kind=kind,  # type: ignore[arg-type]  # keys are the kinds
                        workers=_parse_number(parts.get("workers")),
                        replicas_per_worker=_parse_number(parts.get("replicas")),
                        parameter_servers=(
                            _parse_number(parts["servers"]) if kind == "ps" else 0
                        ),
                        device=device if at else None,  # type: ignore[arg-type]
                    )
        _check_numbers(text, body, device)
        raise BadInputError(
            f"Cluster spec {text!r} is not known. Expected {GRAMMAR}."
            f"{_suggest(text, body, device)}"
        )

    def __str__(self) -> str:
        count = {ALL: "all"}
        workers = count.get(self.workers, str(self.workers))
        replicas = count.get(self.replicas_per_worker, str(self.replicas_per_worker))
        servers = count.get(self.parameter_servers, str(self.parameter_servers))
        body = {
            "one": "one",
            "mirrored": f"mirrored:{replicas}",
            "central": f"central:{replicas}",
            "mwms": f"mwms:{workers}"
            + (f"x{replicas}" if self.replicas_per_worker != 1 else ""),
            "ps": f"ps:{workers}+{servers}",
        }[self.kind]
        return body + (f"@{self.device}" if self.device else "")

    def resolve(self, *, gpus: int, cpus: int) -> ClusterSpec:
        """Replace `all` and an open device by what this machine has.

        Args:
            gpus: Number of GPUs that the bench may use.
            cpus: Number of CPU cores; `all` without GPUs takes as many.

        The result may need more GPUs than there are (`gpus_needed`): a run to skip.
        """
        device = self.device
        if device is None:
            wanted = [self.workers, self.replicas_per_worker]
            enough = gpus >= (wanted[0] or 1) * (wanted[1] or 1) and self.kind != "ps"
            # Several replicas per worker exist on GPUs alone, so a machine without
            # them lacks something: that is a skip, not bad usage.
            only_gpu = self.kind == "mwms" and self.replicas_per_worker > 1
            device = "gpu" if only_gpu or (gpus and enough) else "cpu"
        have = gpus if device == "gpu" else cpus
        workers = self.workers
        replicas = self.replicas_per_worker
        if replicas == ALL and device == "gpu":
            replicas = max(1, have // (workers or 1))
        elif replicas == ALL:
            replicas = 1 if self.kind == "mwms" else have
        if workers == ALL:
            workers = max(1, have // replicas)
        return dataclasses.replace(
            self,
            workers=workers,
            replicas_per_worker=replicas,
            parameter_servers=(self.parameter_servers or 1 if self.kind == "ps" else 0),
            device=device,
        )

    @property
    def replicas(self) -> int:
        """Number of replicas, `num_replicas_in_sync`.

        Under `ps` each scheduled step runs on one worker by itself, so one replica.
        """
        return 1 if self.kind == "ps" else self.workers * self.replicas_per_worker

    @property
    def variable_device(self) -> Device:
        """The kind of device that a resolved spec has its variables on.

        Parameter servers and `central` have them on CPUs, wherever replicas compute.
        """
        is_beside = self.device == "gpu" and self.kind not in ("ps", "central")
        return "gpu" if is_beside else "cpu"

    @property
    def computes_elsewhere(self) -> bool:
        """Whether a resolved spec has GPUs, and its variables beside them on CPUs."""
        return self.device == "gpu" and self.variable_device == "cpu"

    @property
    def gpus_per_task(self) -> int:
        """Number of GPUs that each worker of a resolved spec needs."""
        return self.replicas_per_worker if self.device == "gpu" else 0

    @property
    def gpus_needed(self) -> int:
        """Number of GPUs that a resolved spec needs."""
        return self.workers * self.gpus_per_task

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Every task of a resolved spec; the first one decides what a step is."""
        workers = tuple(Task(role="worker", index=i) for i in range(self.workers))
        if self.kind != "ps":
            return workers
        servers = tuple(Task(role="ps", index=i) for i in range(self.parameter_servers))
        return (Task(role="chief", index=0), *workers, *servers)


def _check_numbers(text: str, body: str, device: str) -> None:
    """Refuse a spec that is none for nothing but a number."""
    if re.sub(_ANY_NUMBER, "#", body.replace("all", "#")) not in _SHAPES:
        return
    for number in re.findall(_ANY_NUMBER, body):
        if not re.fullmatch(f"0*{_COUNT}", number):
            nearest = _find_nearest(re.sub(_ANY_NUMBER, _bring_near, body), device)
            raise BadInputError(
                f"Cluster spec {text!r}: a number must be from 1 to {_MOST}, or 'all'. "
                f"Received: {number}. Expected {GRAMMAR}.{suggest(nearest)}"
            )


def _bring_near(number: re.Match[str]) -> str:
    if re.fullmatch(f"0*{_COUNT}", number[0]):
        return number[0]
    is_less = number[0].startswith("-") or not number[0].strip("0")
    return "1" if is_less else str(_MOST)


def _suggest(text: str, body: str, device: str) -> str:
    parts = [part for part in map(str.strip, text.split(",")) if part]
    if len(parts) > 1 and all(part[0].isalpha() for part in parts):
        known = all(part.partition(":")[0] in _PATTERNS for part in parts)
        shown = parts if known else ("mirrored:2", "mwms:2")
        return f" Give each by itself: {' '.join(f'-c {part}' for part in shown)}."
    return suggest(_find_nearest(body, device))


def _find_nearest(body: str, device: str) -> list[str]:
    """The valid spec that is nearest to a text, with the text's own numbers.

    Nothing where its kind is near none.
    """
    words = body.strip().lower()
    kinds = find_near(re.split("[^a-z]", words)[0], _PATTERNS)
    if not kinds:
        return []
    numbers = re.findall(_NUMBER, words)
    shape = re.sub(r"[0-9]+|all", "#", words)
    # Who wrote no number at all meant no second one of replicas.
    alike = [usual for usual in _SHAPES if usual.startswith(kinds[0])]
    meant = [usual for usual in alike if numbers or "x" not in usual]
    nearest = difflib.get_close_matches(shape, meant, n=1, cutoff=0.0)[0]
    for usual in ("2", "1"):
        nearest = nearest.replace("#", numbers.pop(0) if numbers else usual, 1)
    # Several replicas of one worker need GPUs.
    known = ("gpu",) if "x" in nearest else ("cpu", "gpu")
    return ["@".join([nearest, *find_near(device, known)])]


def _parse_number(text: str | None) -> int:
    if text is None:
        return 1
    return ALL if text == "all" else int(text)
