"""What a night runs: the scenarios file by file, then checks of many variants."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from distbench.machine import Machine

_MOST_REPLICAS = 8
"""Of replicas on cores: more take long, and say nothing more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One process of a night.

    Attributes:
        name: Unique in the night, and fit for a file's name.
        kind: `tests` for pytest, `check` for `distbench check`.
        words: The command, but for where its verdict goes.
    """

    name: str
    kind: Literal["tests", "check"]
    words: tuple[str, ...]

    def make_command(self, verdict: Path) -> list[str]:
        """The command that writes its verdict to a file."""
        option = {"tests": "--distbench-tests", "check": "--json"}[self.kind]
        return [sys.executable, "-m", *self.words, option, str(verdict)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """How an optimizer is checked.

    Attributes:
        dtype: What the workload trains in.
        examples: Size of the global batch; 0 leaves it to the bench.
        workload: Empty for those that every optimizer is checked on.
        tiers: What is compared. In half precision the noise of a run that goes free is
            as large as a lost example, and nothing is decided.
    """

    dtype: str
    examples: int = 0
    workload: str = ""
    tiers: tuple[str, ...] = ("exact", "bounded", "free")

    @property
    def name(self) -> str:
        """Reads like `float32-64`, `float64-mlp`."""
        parts = [self.dtype, str(self.examples or ""), self.workload]
        return "-".join(part for part in parts if part)


VARIANTS = (
    Variant(dtype="float32"),
    Variant(dtype="float32", examples=64),
    Variant(dtype="float32", workload="mlp", tiers=("bounded", "free")),
    Variant(dtype="float64"),
    Variant(dtype="float16", tiers=("exact", "bounded")),
    Variant(dtype="float32", examples=256, tiers=("bounded",)),
)
"""What tells most comes first: a night may be too short.

bfloat16 is not among them: the broadcast of CPU workers refuses it, and steps as small
as Adam's vanish in its eight bits, so nothing is compared.
"""


def plan_clusters(machine: Machine, require_gpus: int = 0) -> tuple[str, ...]:
    """Clusters that use what a machine has: its cores, and all of its GPUs.

    GPUs that are required and lacking are planned too, so that it is seen.
    """
    replicas = min(_MOST_REPLICAS, max(2, machine.cores))
    clusters = [f"mirrored:{replicas}@cpu", "mwms:2@cpu", "ps:2+1@cpu"]
    if machine.gpus < require_gpus:
        return (*clusters, f"mirrored:{require_gpus}@gpu", f"mwms:{require_gpus}@gpu")
    if machine.gpus:
        clusters.append("mirrored:all@gpu")
    if machine.gpus > 1:
        clusters.append("mwms:all@gpu")
    if machine.gpus > 3 and machine.gpus % 2 == 0:
        clusters.append(f"mwms:2x{machine.gpus // 2}@gpu")
    return tuple(clusters)


def plan_jobs(
    clusters: Sequence[str],
    scenarios: Sequence[Path],
    optimizers: Sequence[str],
    programs: Sequence[str],
    *,
    require_gpus: int = 0,
    workers: int = 1,
    engine: str = "local",
) -> tuple[Job, ...]:
    """All jobs of a night, in the order in which they are run.

    Args:
        clusters: Those that optimizers and programs are checked on.
        scenarios: Test files.
        optimizers: Targets that are checked in every variant.
        programs: Targets that bring data and a dtype of their own.
        require_gpus: GPUs without which the night is no pass.
        workers: Tests, or scenarios of a check, that run at the same time.
        engine: Who starts their tasks.
    """
    gpus = ("--require-gpus", str(require_gpus)) if require_gpus else ()
    check = (*_repeat("-c", clusters), *gpus)
    if workers > 1:
        check += ("-j", str(workers))
    if engine != "local":
        check += ("--engine", engine)
    jobs = [
        Job(
            name=f"scenarios-{file.stem}",
            kind="tests",
            words=(
                *("pytest", str(file), "-q", "-rs", "-p", "no:cacheprovider"),
                *(("-n", str(workers)) if workers > 1 else ()),
                *(("--distbench-engine", engine) if engine != "local" else ()),
                *gpus,
            ),
        )
        for file in scenarios
    ]
    jobs += [
        Job(
            name=f"{_shorten(target)}-{variant.name}",
            kind="check",
            words=(
                *("distbench", "check", target, *check),
                *_repeat("--tier", variant.tiers),
                *_spell(variant),
            ),
        )
        for variant in VARIANTS
        for target in optimizers
    ]
    jobs += [
        Job(
            name=_shorten(target),
            kind="check",
            words=(
                *("distbench", "check", target, *check),
                *_repeat("--tier", VARIANTS[0].tiers),
            ),
        )
        for target in programs
    ]
    return tuple(_number(jobs))


def _spell(variant: Variant) -> tuple[str, ...]:
    words = ["--dtype", variant.dtype]
    if variant.examples:
        words += ["--examples", str(variant.examples)]
    if variant.workload:
        words += ["--workload", variant.workload]
    return tuple(words)


def _repeat(option: str, values: Sequence[str]) -> tuple[str, ...]:
    return tuple(word for value in values for word in (option, value))


def _shorten(target: str) -> str:
    name = target.rpartition(":")[2].removeprefix("make_")
    return re.sub(r"[^\w.]+", "_", name) or "target"


def _number(jobs: Sequence[Job]) -> Iterator[Job]:
    """Tell targets apart that are called alike."""
    seen: dict[str, int] = {}
    for job in jobs:
        seen[job.name] = seen.get(job.name, 0) + 1
        number = seen[job.name]
        name = job.name if number == 1 else f"{job.name}-{number}"
        yield Job(name=name, kind=job.kind, words=job.words)
