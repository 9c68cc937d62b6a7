"""Faults of the slots."""

from __future__ import annotations

import numpy as np
from planted_case import ADAM, MOMENTUM, Case
from simulated_rule import Rule
from training_simulator import KERNEL, Fault
from wrong_steps import (
    add_state,
    feed,
    feed_late,
    feed_mean_square,
    from_local,
    from_replica,
    repeat,
)

CASES = [
    Case(
        name="slot-starts-at-one",
        code="slot-initial",
        phase="slot",
        step=-1,
        fault=Fault(
            start=lambda s, r: {
                k: v + 1 if k.startswith("momentum/") else v for k, v in s.items()
            }
        ),
        setup={"rule": MOMENTUM},
    ),
    Case(
        name="average-starts-at-zero",
        code="slot-initial",
        phase="slot",
        step=-1,
        fault=Fault(
            start=lambda s, r: {
                k: 0 * v if k.startswith("average/") else v for k, v in s.items()
            }
        ),
        setup={"rule": Rule(name="ema")},
    ),
    *(
        Case(
            name=f"{name}-the-last-gradient",
            code="stale-gradient",
            phase="applied_gradient",
            variable=KERNEL,
            fault=Fault(update=feed_late),
            steps=2,
            setup={**rule, "sparse": False},
        )
        for name, rule in (
            ("momentum-takes", {"rule": MOMENTUM}),
            ("moments-take", {"rule": ADAM}),
            ("forgetful-slots-take", {"rule": Rule(name="momentum", beta=0.0)}),
            ("step-takes", {}),
        )
    ),
    Case(
        name="momentum-from-local",
        code="slot-from-local-gradient",
        phase="slot",
        variable=f"momentum/{KERNEL}",
        fault=Fault(update=from_local("momentum")),
        setup={"rule": MOMENTUM},
    ),
    Case(
        name="second-moment-from-local",
        code="slot-from-local-gradient",
        phase="slot",
        variable=f"v/{KERNEL}",
        fault=Fault(update=from_local("v")),
        setup={"rule": ADAM},
    ),
    Case(
        name="first-moment-from-local-times-n",
        code="slot-from-local-gradient",
        phase="slot",
        variable=f"m/{KERNEL}",
        fault=Fault(update=from_local("m", 2.0)),
        setup={"rule": ADAM},
    ),
    Case(
        name="slot-from-the-last-replica-everywhere",
        code="slot-from-local-gradient",
        phase="slot",
        variable=f"momentum/{KERNEL}",
        fault=Fault(update=from_replica("momentum", 1)),
        setup={"rule": MOMENTUM},
    ),
    Case(
        name="slot-takes-the-mean",
        code="scale-error",
        phase="slot",
        variable=f"momentum/{KERNEL}",
        fault=Fault(update=feed("momentum", 0.5)),
        setup={"rule": MOMENTUM},
    ),
    Case(
        name="second-moment-takes-the-mean",
        code="scale-error",
        phase="slot",
        variable=f"v/{KERNEL}",
        fault=Fault(update=feed("v", 1 / 3)),
        setup={"rule": ADAM, "replicas": 3},
    ),
    Case(
        name="average-takes-half-of-what-is-due",
        code="scale-error",
        phase="slot",
        variable=f"average/{KERNEL}",
        fault=Fault(
            update=add_state(
                lambda k, v, old, run: (
                    np.float32(0.75) * old[k]
                    + np.float32(0.5) * (v - np.float32(0.75) * old[k])
                    if k.startswith("average/")
                    else v
                )
            )
        ),
        # The average starts as a copy: for a step the variable is its old value.
        steps=2,
        setup={"rule": Rule(name="ema")},
    ),
    Case(
        name="second-moment-of-the-mean-square",
        code="slot-from-local-gradient",
        phase="slot",
        variable=f"v/{KERNEL}",
        fault=Fault(update=feed_mean_square),
        setup={"rule": ADAM, "replicas": 3},
    ),
    Case(
        name="slot-only-on-replica-0",
        code="slot-not-synchronized",
        phase="slot",
        replicas=(1,),
        fault=Fault(
            update=add_state(
                lambda k, v, old, run: (
                    old[k] if run.replica == 1 and k.startswith("m/") else v
                )
            )
        ),
        setup={"rule": ADAM},
    ),
    Case(
        name="slot-differs-by-replica",
        code="slot-not-synchronized",
        phase="slot",
        fault=Fault(
            update=add_state(
                lambda k, v, old, run: (
                    v
                    + np.float32(run.replica)
                    * np.sin(np.arange(v.size)).reshape(v.shape)
                    if k.startswith("momentum/")
                    else v
                )
            )
        ),
        setup={"rule": MOMENTUM},
    ),
    Case(
        name="momentum-slot-twice",
        code="slot-repeated",
        phase="slot",
        fault=Fault(update=repeat(2, lambda k: k.startswith("momentum/"))),
        setup={"rule": MOMENTUM},
    ),
    Case(
        name="accumulator-n-times",
        code="slot-repeated",
        phase="slot",
        fault=Fault(update=repeat(3, lambda k: k.startswith("sum/"))),
        setup={"rule": Rule(name="adagrad"), "replicas": 3},
    ),
]
