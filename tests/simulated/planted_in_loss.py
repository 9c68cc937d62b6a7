"""Faults of the loss and of the penalty."""

from __future__ import annotations

import numpy as np
from gradient_values import add_up, scale
from planted_case import Case
from training_simulator import KERNEL, Fault
from wrong_steps import of

CASES = [
    Case(
        name="loss-times-n",
        code="loss-not-scaled",
        phase="loss",
        fault=Fault(scale=lambda r, s: s.replicas),
    ),
    Case(
        name="loss-local-mean",
        code="loss-not-scaled",
        phase="loss",
        fault=Fault(scale=of),
    ),
    Case(
        name="loss-sum",
        code="loss-not-scaled",
        phase="loss",
        fault=Fault(scale=lambda r, s: s.examples),
    ),
    Case(
        name="loss-local-mean-program",
        code="loss-not-scaled",
        phase="loss",
        fault=Fault(scale=of),
        setup={"shards_known": False},
    ),
    Case(
        name="loss-over-n",
        code="loss-scaled-twice",
        phase="loss",
        fault=Fault(scale=lambda r, s: 1 / s.replicas),
    ),
    Case(
        name="loss-over-g",
        code="loss-scaled-twice",
        phase="loss",
        fault=Fault(scale=lambda r, s: 1 / s.examples),
    ),
    Case(
        name="loss-over-n-program",
        code="loss-scaled-twice",
        phase="loss",
        fault=Fault(scale=lambda r, s: 1 / s.replicas),
        setup={"shards_known": False},
    ),
    Case(
        name="mean-of-means",
        code="mean-of-means",
        phase="loss",
        fault=Fault(scale=lambda r, s: of(r, s) / s.replicas),
    ),
    Case(
        name="mean-of-means-program",
        code="mean-of-means",
        phase="loss",
        fault=Fault(scale=lambda r, s: of(r, s) / s.replicas),
        setup={"shards_known": False},
    ),
    Case(
        name="mean-of-means-in-the-reduction",
        code="mean-of-means",
        phase="reduced_gradient",
        fault=Fault(
            reduce=lambda ls, step: [
                add_up(
                    [
                        {k: scale(v, 16 / (len(ls) * n)) for k, v in g.items()}
                        for g, n in zip(ls, (9, 7), strict=True)
                    ]
                )
                for _ in ls
            ]
        ),
        setup={"shards": (9, 7)},
    ),
    Case(
        name="mean-loss-and-mean-aggregator-uneven",
        code="mean-of-means",
        phase="loss",
        fault=Fault(scale=lambda r, s: of(r, s) / s.replicas),
        setup={"replicas": 4},
    ),
    Case(
        name="loss-of-one-replica-times-n",
        code="scale-error",
        phase="loss",
        replicas=(1,),
        fault=Fault(scale=lambda r, s: s.replicas if r == 1 else 1),
    ),
    Case(
        name="loss-of-one-replica-times-g-program",
        code="scale-error",
        phase="loss",
        replicas=(1,),
        fault=Fault(scale=lambda r, s: s.examples if r == 1 else 1),
        setup={"shards_known": False},
    ),
    Case(
        name="loss-of-one-replica-over-n",
        code="scale-error",
        phase="loss",
        replicas=(1,),
        fault=Fault(scale=lambda r, s: 1 / s.replicas if r == 1 else 1),
    ),
    Case(
        name="each-replica-has-its-factor",
        code="scale-error",
        phase="loss",
        replicas=(0, 1),
        fault=Fault(scale=lambda r, s: (0.3, 1.7)[r]),
    ),
    Case(
        name="five-divided-by-eight-program",
        code="scale-error",
        phase="loss",
        fault=Fault(scale=lambda r, s: 5 / 8),
        # Here the sum of the losses is near what a mean divided twice would give.
        setup={"shards": (3, 2), "width": 1, "shards_known": False},
    ),
    Case(
        name="penalty-by-every-replica",
        code="regularizer-not-scaled",
        phase="local_gradient",
        variable=KERNEL,
        fault=Fault(penalty=lambda r, s: 1.0),
        setup={"penalty": 0.3},
    ),
    Case(
        name="penalty-by-the-first-replica-only",
        code="regularizer-not-scaled",
        phase="local_gradient",
        variable=KERNEL,
        replicas=(1,),
        fault=Fault(penalty=lambda r, s: 1 / s.replicas if r == 0 else 0.0),
        setup={"penalty": 0.3},
    ),
    Case(
        name="penalty-in-a-program",
        code="regularizer-not-scaled",
        phase="local_gradient",
        variable=KERNEL,
        fault=Fault(penalty=lambda r, s: 1.0),
        setup={"penalty": 0.3, "shards_known": False},
    ),
    Case(
        name="loss-of-replica-0-times-n",
        code="loss-misreported",
        phase="loss",
        fault=Fault(loss=lambda loss, r: loss * np.float32(2)),
    ),
    Case(
        name="loss-reported-as-the-shard-mean",
        code="loss-misreported",
        phase="loss",
        fault=Fault(loss=lambda loss, r: loss * np.float32(16 / (9, 7)[r])),
        setup={"shards": (9, 7)},
    ),
    Case(
        name="penalty-lacks-in-a-program",
        code="regularizer-not-scaled",
        phase="local_gradient",
        variable=KERNEL,
        fault=Fault(penalty=lambda r, s: 1 / s.replicas if r == 0 else 0.0),
        setup={"penalty": 0.3, "shards_known": False},
    ),
]
