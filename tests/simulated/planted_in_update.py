"""Faults of variables, of counters and of where they start."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from planted_case import ADAM, MOMENTUM, Case
from simulated_rule import Rule
from training_simulator import BIAS, KERNEL, TRAINED, Fault
from wrong_steps import add_state, repeat

CASES = [
    Case(
        name="sgd-twice",
        code="update-repeated",
        phase="variable",
        fault=Fault(update=repeat(2)),
    ),
    Case(
        name="momentum-twice",
        code="update-repeated",
        phase="variable",
        variable=KERNEL,
        fault=Fault(update=repeat(2)),
        setup={"rule": MOMENTUM},
    ),
    Case(
        name="adam-twice",
        code="update-repeated",
        phase="variable",
        variable=KERNEL,
        fault=Fault(update=repeat(2)),
        setup={"rule": ADAM},
    ),
    Case(
        name="sgd-n-times",
        code="update-repeated",
        phase="variable",
        fault=Fault(update=repeat(3, lambda k: k != "iterations")),
        setup={"replicas": 3},
    ),
    Case(
        name="copies-summed",
        code="scale-error",
        phase="variable",
        fault=Fault(
            update=add_state(
                lambda k, v, old, run: (
                    np.float32(len(run.locals)) * v if k in TRAINED else v
                )
            )
        ),
        setup={"rule": ADAM},
        steps=2,
    ),
    Case(
        name="decay-twice",
        code="weight-decay-repeated",
        phase="variable",
        fault=Fault(
            update=add_state(
                lambda k, v, old, run: (
                    v - np.float32(0.125 * 0.1) * old[k] if k in TRAINED else v
                )
            )
        ),
        setup={"rule": Rule(decay=0.1)},
    ),
    Case(
        name="decay-n-times-adam",
        code="weight-decay-repeated",
        phase="variable",
        fault=Fault(
            update=add_state(
                lambda k, v, old, run: (
                    v - np.float32(2 * 0.125 * 0.1) * old[k] if k in TRAINED else v
                )
            )
        ),
        setup={"rule": Rule(name="adam", decay=0.1)},
    ),
    Case(
        name="decay-missing",
        code="weight-decay-missing",
        phase="variable",
        fault=Fault(
            update=add_state(
                lambda k, v, old, run: (
                    v + np.float32(0.125 * 0.1) * old[k] if k in TRAINED else v
                )
            )
        ),
        setup={"rule": Rule(decay=0.1)},
    ),
    Case(
        name="decay-missing-adam",
        code="weight-decay-missing",
        phase="variable",
        fault=Fault(
            update=add_state(
                lambda k, v, old, run: (
                    v + np.float32(0.125 * 0.1) * old[k] if k in TRAINED else v
                )
            )
        ),
        setup={"rule": Rule(name="adam", decay=0.1)},
    ),
    Case(
        name="decay-that-one-device-lacks",
        code="hyperparameter-differs",
        phase="variable",
        fault=Fault(
            update=add_state(
                lambda k, v, old, run: (
                    v - np.float32(0.01) * old[k] if k in TRAINED else v
                )
            )
        ),
        setup={"rule": MOMENTUM},
    ),
    Case(
        name="momentum-term-twice",
        code="momentum-repeated",
        phase="variable",
        fault=Fault(
            update=add_state(
                lambda k, v, old, run: (
                    v - np.float32(0.125 * 0.5) * old[f"momentum/{k}"]
                    if k in TRAINED
                    else v
                )
            )
        ),
        setup={"rule": MOMENTUM},
        step=1,
        steps=2,
    ),
    Case(
        name="momentum-term-n-times",
        code="momentum-repeated",
        phase="variable",
        fault=Fault(
            update=add_state(
                lambda k, v, old, run: (
                    v - np.float32(3 * 0.125 * 0.5) * old[f"momentum/{k}"]
                    if k in TRAINED
                    else v
                )
            )
        ),
        setup={"rule": MOMENTUM, "replicas": 4},
        step=1,
        steps=2,
    ),
    Case(
        name="other-rate",
        code="hyperparameter-differs",
        phase="variable",
        fault=Fault(
            update=add_state(
                lambda k, v, old, run: (
                    old[k] + np.float32(0.3) * (v - old[k]) if k in TRAINED else v
                )
            )
        ),
        setup={"rule": ADAM},
    ),
    Case(
        name="twice-the-rate-from-the-second-step-on",
        code="hyperparameter-differs",
        phase="variable",
        fault=Fault(
            update=add_state(
                lambda k, v, old, run: (
                    v + (v - old[k]) if k in TRAINED and old["iterations"] else v
                )
            )
        ),
        step=1,
        steps=3,
    ),
    Case(
        name="five-times-the-rate-from-the-second-step-on",
        code="hyperparameter-differs",
        phase="variable",
        fault=Fault(
            update=add_state(
                lambda k, v, old, run: (
                    v + 4 * (v - old[k]) if k in TRAINED and old["iterations"] else v
                )
            )
        ),
        step=1,
        steps=3,
    ),
    Case(
        name="other-beta",
        code="hyperparameter-differs",
        phase="slot",
        fault=Fault(
            update=lambda new, old, g, run: replace(run.rule, beta=0.7).update(old, g)
        ),
        setup={"rule": MOMENTUM},
        step=1,
        steps=2,
    ),
    Case(
        name="iterations-by-n",
        code="iterations-wrong",
        phase="iterations",
        fault=Fault(
            update=lambda new, old, g, run: {
                **new,
                "iterations": old["iterations"] + 2,
            }
        ),
    ),
    Case(
        name="iterations-still",
        code="iterations-wrong",
        phase="iterations",
        fault=Fault(
            update=lambda new, old, g, run: {**new, "iterations": old["iterations"]}
        ),
    ),
    Case(
        name="one-replica-does-not-move",
        code="replicas-diverged",
        phase="variable",
        replicas=(1,),
        fault=Fault(
            update=add_state(
                lambda k, v, old, run: (
                    old[k]
                    + np.float32(0.5) * np.cos(np.arange(v.size)).reshape(v.shape)
                    if run.replica == 1 and k in TRAINED
                    else v
                )
            )
        ),
    ),
    Case(
        name="replicas-start-apart",
        code="initial-value-differs",
        phase="variable",
        step=-1,
        replicas=(1,),
        variable=BIAS,
        fault=Fault(
            start=lambda s, r: {**s, BIAS: s[BIAS] + 1} if r == 1 else s,
        ),
    ),
    Case(
        name="one-replica-takes-no-update",
        code="replicas-diverged",
        phase="variable",
        replicas=(1,),
        fault=Fault(
            update=add_state(
                lambda k, v, old, run: (
                    old[k] if run.replica == 1 and k in TRAINED else v
                )
            )
        ),
    ),
]
