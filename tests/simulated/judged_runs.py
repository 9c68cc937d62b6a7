"""Runs that the unit tests judge once, and the sweeps over grids."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gradient_values import add_up, add_values, scale
from simulated_rule import Rule
from training_simulator import Fault, observe, reduce_with

from distbench.diagnose.judge import judge
from distbench.verdict import Status

_RULES = (Rule(), Rule(name="momentum"), Rule(name="adam"), Rule(clip=0.5))


MEAN = reduce_with(lambda v: scale(add_values(v), 1 / len(v)))


def sum_in_two_stages(locals_, step):
    half = len(locals_) // 2
    total = add_up([add_up(locals_[half:][::-1]), add_up(locals_[:half])])
    return [total for _ in locals_]


# One step, where it is enough to compare many numbers and to see the noise.
UNUSUAL: dict[str, tuple[Fault, dict[str, Any]]] = {
    "one-device": (Fault(), {"replicas": 1, "steps": 2}),
    "central-storage": (Fault(), {"replicas": 4, "central": True}),
    "two-stage-sum": (Fault(reduce=sum_in_two_stages), {"replicas": 8}),
    "scaled-up-and-averaged": (
        Fault(scale=lambda r, s: s.replicas, reduce=MEAN),
        {"shards_known": False, "loss_reduction": "mean", "replicas": 3},
    ),
    "local-mean-under-a-mean-with-even-shards": (
        Fault(scale=lambda r, s: s.replicas, reduce=MEAN),
        {"shards_known": False, "loss_reduction": None, "shards": (8, 8)},
    ),
    "sign-rule-with-scaled-gradients": (
        Fault(reduce=reduce_with(lambda v: scale(add_values(v), 2))),
        {"rule": Rule(name="sign")},
    ),
    "sum-scaled-and-undone-before-the-update": (
        Fault(
            reduce=MEAN,
            transform=lambda g, r, step: {k: scale(v, 2) for k, v in g.items()},
        ),
        {"rule": Rule(name="momentum")},
    ),
    "clip-after-the-sum": (Fault(), {"rule": Rule(clip=0.3), "replicas": 3}),
    "decoupled-decay": (Fault(), {"rule": Rule(name="adam", decay=0.1)}),
    "moving-average": (Fault(), {"rule": Rule(name="ema"), "replicas": 3}),
    "penalty": (Fault(), {"penalty": 0.2, "replicas": 4}),
    "empty-shard": (Fault(), {"shards": (9, 0, 7), "replicas": 3}),
    "half-precision": (Fault(), {"dtype": "float16", "replicas": 4, "steps": 2}),
    "program": (Fault(), {"shards_known": False, "loss_reduction": None}),
}


def is_exact(name):
    """Plain SGD on dyadic data keeps every number representable, without 1/3."""
    setup = UNUSUAL[name][1]
    inexact = {"rule", "penalty"} & set(setup) or name == "scaled-up-and-averaged"
    return not inexact


UNUSUAL_RUNS = [(name, "bounded") for name in UNUSUAL]
UNUSUAL_RUNS += [(name, "exact") for name in UNUSUAL if is_exact(name)]
UNUSUAL_IDS = ["-".join(run) for run in UNUSUAL_RUNS]


def check_unusual_passes(name: str, tier: str, **more: Any) -> None:
    """A correct program that looks like a mistake has no finding."""
    fault, setup = UNUSUAL[name]
    judgement = judge(observe(fault, tier=tier, **{"steps": 1, **setup, **more}))
    assert judgement.status is Status.PASS, judgement
    assert judgement.findings == ()
    assert judgement.checked > 50


def check_no_false_alarm(*, seed: int, replicas: int) -> None:
    """Nothing is found in a run without a fault; the seed draws its settings too."""
    rng = np.random.default_rng(seed)
    judgement = judge(
        observe(
            seed=seed,
            replicas=replicas,
            dtype=str(rng.choice(["float32", "float16"])),
            rule=_RULES[rng.integers(len(_RULES))],
            sparse=bool(rng.integers(2)),
            shards_known=bool(rng.integers(2)),
            steps=1,
            examples=16,
        )
    )
    # One step of half precision shows too little of its noise to pass.
    assert judgement.status is not Status.FAIL, judgement
    assert judgement.findings == ()


def check_millionth_caught(path: str, *, replicas: int, steps: int) -> None:
    """A sum that is wrong by a factor of one millionth is found where it is."""
    factor = 1 + 1e-6

    def reduce(locals_, step):
        total = add_up(locals_)
        total[path] = total[path] * np.float32(factor)
        return [total for _ in locals_]

    run = observe(Fault(reduce=reduce), replicas=replicas, width=16, steps=steps)
    judgement = judge(run)
    assert judgement.status is Status.FAIL
    first = judgement.findings[0]
    assert (first.phase, first.variable) == ("reduced_gradient", path)
    assert first.ratio == pytest.approx(factor, abs=2e-7)
