"""Faults of dense gradients on their way to the update."""

from __future__ import annotations

import numpy as np
from gradient_values import add_up, add_values, map_values, scale, to_array
from planted_case import DENSE, Case
from training_simulator import BIAS, HEAD, KERNEL, TABLE, TRAINED, Fault, reduce_with
from wrong_steps import (
    keep_local,
    on,
    reduce_some,
    round_bf16,
    round_f16,
    swap,
    swap_on,
    turn_buffer,
)

CASES = [
    Case(
        name="identity-aggregator",
        code="missing-reduction",
        phase="reduced_gradient",
        fault=Fault(reduce=lambda ls, step: ls),
    ),
    Case(
        name="own-gradient-over-n",
        code="missing-reduction",
        phase="reduced_gradient",
        fault=Fault(
            reduce=lambda ls, step: [
                {k: scale(v, 1 / len(ls)) for k, v in g.items()} for g in ls
            ]
        ),
    ),
    Case(
        name="one-variable-left-out",
        code="variable-not-reduced",
        phase="reduced_gradient",
        variable=BIAS,
        fault=Fault(reduce=keep_local([BIAS])),
    ),
    Case(
        name="sparse-variable-left-out",
        code="variable-not-reduced",
        phase="reduced_gradient",
        variable=TABLE,
        fault=Fault(reduce=keep_local([TABLE])),
    ),
    Case(
        name="summed-twice",
        code="double-reduction",
        phase="reduced_gradient",
        fault=Fault(reduce=reduce_with(lambda v: scale(add_values(v), len(v)))),
    ),
    Case(
        name="one-variable-summed-twice",
        code="double-reduction",
        phase="reduced_gradient",
        variable=HEAD,
        fault=Fault(reduce=reduce_some([HEAD], lambda v: scale(add_values(v), len(v)))),
    ),
    Case(
        name="summed-before-it-is-handed-over",
        code="double-reduction",
        phase="local_gradient",
        fault=Fault(
            reduce=lambda ls, step: [add_up(ls) for _ in ls],
            local=lambda g, r, step: g,
        ),
        setup={"summed_first": True},
    ),
    Case(
        name="mean-aggregator",
        code="mean-instead-of-sum",
        phase="reduced_gradient",
        fault=Fault(reduce=reduce_with(lambda v: scale(add_values(v), 1 / len(v)))),
    ),
    Case(
        name="dense-mean-sparse-sum",
        code="mean-instead-of-sum",
        phase="reduced_gradient",
        variable=KERNEL,
        fault=Fault(
            reduce=reduce_some(DENSE, lambda v: scale(add_values(v), 1 / len(v)))
        ),
    ),
    Case(
        name="last-replica-lost",
        code="replica-dropped",
        phase="reduced_gradient",
        replicas=(1,),
        fault=Fault(reduce=reduce_with(lambda v: add_values(v[:-1]))),
    ),
    Case(
        name="two-of-eight-lost",
        code="replica-dropped",
        phase="reduced_gradient",
        replicas=(2, 5),
        fault=Fault(
            reduce=reduce_with(lambda v: add_values([v[r] for r in (0, 1, 3, 4, 6, 7)]))
        ),
        setup={"replicas": 8},
    ),
    Case(
        name="the-others-scaled-oddly",
        code="replica-dropped",
        phase="reduced_gradient",
        replicas=(1,),
        fault=Fault(reduce=reduce_with(lambda v: scale(add_values(v[:-1]), 1.37))),
    ),
    Case(
        name="own-gradient-scaled-oddly",
        code="missing-reduction",
        phase="reduced_gradient",
        fault=Fault(
            reduce=lambda ls, step: [
                {k: scale(v, 2.7) for k, v in g.items()} for g in ls
            ]
        ),
    ),
    Case(
        name="mean-of-the-others",
        code="replica-dropped",
        phase="reduced_gradient",
        replicas=(0,),
        fault=Fault(reduce=reduce_with(lambda v: scale(add_values(v[1:]), 4 / 3))),
        setup={"replicas": 4},
    ),
    Case(
        name="two-variables-exchanged",
        code="wrong-pairing",
        phase="reduced_gradient",
        variable=BIAS,
        fault=Fault(reduce=lambda ls, step: [swap(BIAS, HEAD)(add_up(ls)) for _ in ls]),
    ),
    Case(
        name="exchanged-on-one-rank",
        code="wrong-pairing",
        phase="reduced_gradient",
        replicas=(1,),
        fault=Fault(reduce=swap_on(1)),
    ),
    Case(
        name="exchanged-before-the-reduction",
        code="wrong-pairing",
        phase="local_gradient",
        fault=Fault(local=swap(BIAS, HEAD)),
    ),
    Case(
        name="pieces-cut-at-wrong-places",
        code="wrong-pairing",
        phase="reduced_gradient",
        fault=Fault(reduce=lambda ls, step: [turn_buffer(add_up(ls)) for _ in ls]),
    ),
    Case(
        name="median",
        code="nonlinear-before-reduction",
        phase="reduced_gradient",
        fault=Fault(
            reduce=reduce_with(
                lambda v: (3 * np.median([to_array(x) for x in v], axis=0)).astype(
                    "float32"
                )
            )
        ),
        setup={"replicas": 3, "sparse": False},
    ),
    Case(
        name="largest-of-the-replicas",
        code="nonlinear-before-reduction",
        phase="reduced_gradient",
        fault=Fault(
            reduce=reduce_with(lambda v: 2 * np.max([to_array(x) for x in v], axis=0))
        ),
        setup={"sparse": False},
    ),
    Case(
        name="factor-of-each-step",
        code="scale-error",
        phase="reduced_gradient",
        fault=Fault(
            reduce=lambda ls, step: reduce_with(
                lambda v: scale(add_values(v), (step + 3) / (step + 4))
            )(ls, step)
        ),
    ),
    Case(
        name="stale-applied",
        code="stale-gradient",
        phase="applied_gradient",
        step=1,
        steps=2,
        fault=Fault(transform="stale"),
    ),
    Case(
        name="stale-local-of-one-variable",
        code="stale-gradient",
        phase="local_gradient",
        variable=KERNEL,
        step=1,
        steps=2,
        fault=Fault(local="stale"),
    ),
    Case(
        name="factor-of-one-variable",
        code="scale-error",
        phase="reduced_gradient",
        variable=KERNEL,
        fault=Fault(reduce=reduce_some([KERNEL], lambda v: scale(add_values(v), 1.37))),
    ),
    Case(
        name="one-replica-weighs-more",
        code="scale-error",
        phase="reduced_gradient",
        replicas=(1,),
        fault=Fault(
            reduce=reduce_with(lambda v: add_values([v[0], scale(v[1], 1.25)]))
        ),
    ),
    Case(
        name="applied-scaled",
        code="scale-error",
        phase="applied_gradient",
        fault=Fault(transform=on(TRAINED, lambda v: scale(v, 0.7))),
    ),
    Case(
        name="inf-on-one-replica",
        code="nonfinite",
        phase="local_gradient",
        variable=BIAS,
        replicas=(1,),
        fault=Fault(
            local=lambda g, r, step: (
                {**g, BIAS: g[BIAS] * np.float32(np.inf)} if r == 1 else g
            )
        ),
    ),
    Case(
        name="nan-after-the-reduction",
        code="nonfinite",
        phase="reduced_gradient",
        variable=KERNEL,
        fault=Fault(
            reduce=reduce_some([KERNEL], lambda v: add_values(v) * np.float32(np.nan))
        ),
    ),
    Case(
        name="half-precision-all-reduce",
        code="lower-precision",
        phase="reduced_gradient",
        warning=True,
        fault=Fault(
            reduce=reduce_with(
                lambda v: map_values(
                    add_values([map_values(x, round_f16) for x in v]), round_f16
                )
            )
        ),
    ),
    Case(
        name="bfloat16-local",
        code="lower-precision",
        phase="local_gradient",
        warning=True,
        fault=Fault(local=on(TRAINED, lambda v: map_values(v, round_bf16))),
    ),
]
