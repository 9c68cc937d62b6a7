"""What a soak runs: drawn from its seed and a number, the same whatever was before."""

from __future__ import annotations

import random
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from own_optimizers import OWN

from distbench.cluster import ClusterSpec
from distbench.scenario import Scenario
from distbench.scenario.choices import PATHS, PROGRAM, TIERS, WORKLOADS
from distbench.unusual import UNUSUAL, Unusual

KERAS = ("Adadelta", "Adagrad", "Adam", "Adamax", "Ftrl", "Nadam", "RMSprop", "SGD")
REPLICAS = {2: 6, 3: 4, 4: 4, 5: 2, 6: 2, 7: 2, 8: 3, 16: 1}
"""Sizes of clusters with their weights: large ones take long and compare much."""
KINDS = {"mirrored": 4, "mwms": 4, "central": 2}
_DTYPE_WEIGHTS = {"float32": 3, "float64": 1, "float16": 1, "bfloat16": 1}
_STEPS = (1, 2, 3, 3, 3, 5)
TIMEOUT_S = 300.0
_MIRROR = ("mirrored", "mwms")
MIRRORING = tuple(
    sample
    for sample in UNUSUAL
    if any(ClusterSpec.parse(spec).kind in _MIRROR for spec in sample.clusters)
)
"""The unusual programs that are written for strategies that mirror."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What one run is made of."""

    number: int
    target: str
    workload: str
    cluster: str
    path: str
    dtype: str
    seed: int
    steps: int

    @property
    def command(self) -> str:
        """What shows it again."""
        words = ["distbench", "check", self.target, "-c", self.cluster]
        if self.workload != PROGRAM:
            words += ["--workload", self.workload, "--path", self.path]
            words += ["--dtype", self.dtype]
        words += ["--seed", str(self.seed), "--steps", str(self.steps)]
        return shlex.join([*words, *(w for tier in TIERS for w in ("--tier", tier))])

    @property
    def scenario(self) -> Scenario:
        """The same for the bench."""
        return Scenario(
            target=self.target,
            workload=self.workload,
            cluster=self.cluster,
            path=self.path,
            dtype=self.dtype,
            seed=self.seed,
            steps=self.steps,
            timeout_s=TIMEOUT_S,
        )


def draw_run(seed: int, number: int) -> Draw:
    """The run with a number; the same whatever was run before it."""
    rng = random.Random(f"{seed}/{number}")
    replicas = _choose(rng, REPLICAS)
    kind = _choose(rng, KINDS)
    settings = {
        "number": number,
        "seed": rng.randrange(1 << 31),
        "steps": rng.choice(_STEPS),
    }
    group = _choose(rng, {"keras": 9, "own": 7, "unusual": 4})
    if group == "unusual":
        return _draw_unusual(rng, rng.choice(MIRRORING), kind, replicas, settings)
    if group == "keras":
        target = f"tf_keras.optimizers.legacy:{rng.choice(KERAS)}"
    else:
        target = rng.choice(OWN)
    paths = [path for path in PATHS if path not in ("default", "none")]
    return Draw(
        target=target,
        workload=rng.choice(list(WORKLOADS)),
        cluster=f"{kind}:{replicas}",
        path="default" if rng.random() < 0.5 else rng.choice(paths),
        dtype=_choose(rng, _DTYPE_WEIGHTS),
        **settings,
    )


def _draw_unusual(
    rng: random.Random,
    sample: Unusual,
    kind: str,
    replicas: int,
    settings: Mapping[str, int],
) -> Draw:
    # Each brings its workload or data. What is correct where one process makes all
    # replicas need not be so where each worker makes its own.
    own = {ClusterSpec.parse(spec).kind for spec in sample.clusters}
    kinds = {name: KINDS[name] for name in _MIRROR if name in own}
    return Draw(
        target=sample.target,
        workload=sample.workload or PROGRAM,
        cluster=f"{kind if kind in kinds else _choose(rng, kinds)}:{replicas}",
        path="default",
        dtype="float32",
        **settings,
    )


def _choose(rng: random.Random, weights: Mapping[Any, int]) -> Any:
    return rng.choices(list(weights), list(weights.values()))[0]


def is_deviating(draw: Draw) -> bool:
    """Whether a right program has values that are not what one device has.

    The outcome is what counts there, and a run that passes says nothing of the bounds
    of values that are scaled up before they are averaged.
    """
    return draw.path == "aggregator-mean" or draw.target.startswith("distbench.unusual")
