"""Faults planted into simulated runs, each with what has to be said of it.

The unit tests run each for as few steps as it needs to show; the sweeps for longer, in
other sizes and with other numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from training_simulator import (
    BIAS,
    HEAD,
    KERNEL,
    TABLE,
    TRAINED,
    Fault,
    Rule,
    Setup,
    Simulation,
    add_up,
    add_values,
    clip_norm,
    map_values,
    observe,
    reduce_with,
    scale,
    to_array,
)

from distbench.diagnose.judge import judge
from distbench.diagnose.judgement import Judgement
from distbench.trace import SparseRows
from distbench.verdict import Status

MOMENTUM = Rule(name="momentum")
ADAM = Rule(name="adam")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A planted fault and what has to be said of it.

    Attributes:
        steps: How many steps it takes until the fault is what it is.
        step: The first that is wrong.
    """

    name: str
    code: str
    phase: str
    fault: Fault
    variable: str | None = None
    replicas: tuple[int, ...] | None = None
    step: int | None = None
    steps: int = 1
    setup: dict[str, Any] = field(default_factory=dict)
    warning: bool = False


def of(r: int, setup: Setup) -> float:
    shards = Simulation(setup).shards
    return sum(shards) / shards[r]


def on(paths, change):
    """A change of some variables' gradients."""
    return lambda gradients, *rest: {
        k: change(v) if k in paths else v for k, v in gradients.items()
    }


def reduce_some(paths, combine):
    def reduce(locals_, step):
        total = add_up(locals_)
        for path in paths:
            total[path] = combine([g[path] for g in locals_])
        return [total for _ in locals_]

    return reduce


def keep_local(paths, factor=1.0):
    def reduce(locals_, step):
        total = add_up(locals_)
        return [{**total, **{p: scale(g[p], factor) for p in paths}} for g in locals_]

    return reduce


def each(change):
    """Apply something to every replica's gradient, then add up."""
    return reduce_with(lambda values: add_values([change(v) for v in values]))


def clip_global(locals_, step, norm=0.5):
    clipped = []
    for g in locals_:
        size = np.sqrt(
            sum(
                np.linalg.norm(np.asarray(getattr(v, "values", v), np.float64)) ** 2
                for v in g.values()
            )
        )
        clipped.append({k: scale(v, min(1.0, norm / size)) for k, v in g.items()})
    total = add_up(clipped)
    return [total for _ in locals_]


def swap(first, second):
    def change(gradients, *rest):
        return {
            **gradients,
            first: gradients[second],
            second: gradients[first],
        }

    return change


def swap_on(replica):
    def reduce(locals_, step):
        mixed = [
            swap(BIAS, HEAD)(g) if r == replica else g for r, g in enumerate(locals_)
        ]
        return [add_up(mixed) for _ in locals_]

    return reduce


class Stale:
    """Hands on what came one step before."""

    def __init__(self, paths=TRAINED):
        self.paths = paths
        self.last = {}

    def __call__(self, gradients, r, step):
        before = self.last.get(r)
        self.last[r] = gradients
        if before is None:
            return gradients
        return {k: before[k] if k in self.paths else v for k, v in gradients.items()}


def from_local(slot, factor=1.0):
    """A slot that is fed with the replica's own gradient."""

    def update(new, old, gradients, run):
        own = {k: scale(v, factor) for k, v in run.locals[run.replica].items()}
        wrong = run.rule.update(old, own)
        return {**new, **{k: v for k, v in wrong.items() if k.startswith(slot + "/")}}

    return update


def from_replica(slot, replica):
    """A slot that is fed with one replica's gradient on all replicas."""

    def update(new, old, gradients, run):
        wrong = run.rule.update(old, run.locals[replica])
        return {**new, **{k: v for k, v in wrong.items() if k.startswith(slot + "/")}}

    return update


def feed(slot, factor):
    """A slot that is fed with a multiple of the gradient."""

    def update(new, old, gradients, run):
        other = {k: scale(v, factor) for k, v in gradients.items()}
        wrong = run.rule.update(old, other)
        return {**new, **{k: v for k, v in wrong.items() if k.startswith(slot + "/")}}

    return update


def feed_mean_square(new, old, gradients, run):
    state = dict(new)
    for path in TRAINED:
        squares = [to_array(g[path]) ** 2 for g in run.locals]
        state[f"v/{path}"] = (
            np.float32(0.9) * old[f"v/{path}"] + np.float32(0.1) * sum(squares) / 3
        ).astype(np.float32)
    return state


def repeat(count, keys=lambda key: True):
    """The update applied several times; only some of the state keeps it."""

    def update(new, old, gradients, run):
        state = new
        for _ in range(count - 1):
            state = run.rule.update(state, gradients)
        return {**new, **{k: v for k, v in state.items() if keys(k)}}

    return update


def add_state(change):
    """Change the state after the update: f(path, new, old, run)."""
    return lambda new, old, gradients, run: {
        k: np.asarray(change(k, v, old, run), v.dtype) for k, v in new.items()
    }


def round_bf16(array):
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return bits.view(np.float32)


def round_f16(array):
    return array.astype(np.float16).astype(array.dtype)


def overwrite(values):
    rows = add_values(values)
    dense = np.zeros(rows.shape, rows.values.dtype)
    dense[rows.indices] = rows.values
    kept = np.unique(rows.indices)
    return SparseRows(indices=kept, values=dense[kept], shape=rows.shape)


def overwrite_each(values):
    return add_values([overwrite([v]) for v in values])


def divide_rows(values):
    rows = add_values(values)
    counts = rows.count_rows()[rows.indices]
    return replace(rows, values=(rows.values / counts[:, None]).astype(np.float32))


def divide_by_replicas(values):
    rows = add_values(values)
    counts = sum((v.count_rows() > 0).astype(int) for v in values)[rows.indices]
    return replace(rows, values=(rows.values / counts[:, None]).astype(np.float32))


def under_first(values):
    length = min(len(v.indices) for v in values)
    total = sum(v.values[:length] for v in values)
    return replace(values[0], indices=values[0].indices[:length], values=total)


def shift(values):
    rows = add_values(values)
    return replace(rows, indices=(rows.indices + 1) % rows.shape[0])


def top_k(values):
    def mask(value):
        a = to_array(value)
        limit = np.quantile(np.abs(a), 0.7)
        return np.where(np.abs(a) >= limit, a, 0).astype(a.dtype)

    return add_values([mask(v) for v in values])


def quantise(value, levels=7):
    a = np.asarray(to_array(value))
    unit = np.abs(a).max() / levels
    return (np.round(a / unit) * unit).astype(a.dtype)


def seed_by(array):
    """Random numbers that depend on the values alone, not on the order of tests."""
    return np.random.default_rng(np.ascontiguousarray(array).view(np.uint32).ravel())


def to_grid(value):
    a = to_array(value)
    rng = seed_by(a)
    return (np.floor(a / 0.05 + rng.random(a.shape)) * 0.05).astype(a.dtype)


def add_noise(value):
    return map_values(value, lambda a: a + seed_by(a).normal(size=a.shape) * 0.3)


DENSE = (KERNEL, BIAS, HEAD)
EVEN = {"shards": (8, 8)}

CASES = [
    # The loss.
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
    # The reduction.
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
        name="norm-clipped-first",
        code="clip-before-reduction",
        phase="reduced_gradient",
        fault=Fault(reduce=each(lambda v: clip_norm(v, 0.4))),
    ),
    Case(
        name="values-clipped-first",
        code="clip-before-reduction",
        phase="reduced_gradient",
        fault=Fault(
            reduce=each(
                lambda v: np.clip(to_array(v), np.float32(-0.1), np.float32(0.1))
            )
        ),
    ),
    Case(
        name="global-norm-clipped-first",
        code="clip-before-reduction",
        phase="reduced_gradient",
        fault=Fault(reduce=clip_global),
        setup={"replicas": 3},
    ),
    Case(
        name="norm-clipped-in-the-step",
        code="clip-before-reduction",
        phase="local_gradient",
        fault=Fault(local=on(DENSE, lambda v: clip_norm(v, 0.4))),
        setup={"replicas": 3},
    ),
    Case(
        name="signs-added-up",
        code="nonlinear-before-reduction",
        phase="reduced_gradient",
        fault=Fault(reduce=each(lambda v: map_values(to_array(v), np.sign))),
    ),
    Case(
        name="quantised-first",
        code="nonlinear-before-reduction",
        phase="reduced_gradient",
        fault=Fault(reduce=each(quantise)),
    ),
    Case(
        name="top-k-first",
        code="nonlinear-before-reduction",
        phase="reduced_gradient",
        fault=Fault(reduce=reduce_with(top_k)),
    ),
    Case(
        name="stochastic-grid-first",
        code="nonlinear-before-reduction",
        phase="reduced_gradient",
        fault=Fault(reduce=each(to_grid)),
    ),
    Case(
        name="noise-first",
        code="nonlinear-before-reduction",
        phase="reduced_gradient",
        variable=KERNEL,
        fault=Fault(
            reduce=reduce_some(
                [KERNEL], lambda v: add_values([add_noise(x) for x in v])
            )
        ),
        setup={"width": 12},
    ),
    # Sparse gradients.
    Case(
        name="rows-overwritten",
        code="sparse-duplicates",
        phase="reduced_gradient",
        variable=TABLE,
        fault=Fault(reduce=reduce_some([TABLE], overwrite)),
    ),
    Case(
        name="rows-overwritten-in-each-replica",
        code="sparse-duplicates",
        phase="reduced_gradient",
        variable=TABLE,
        fault=Fault(reduce=reduce_some([TABLE], overwrite_each)),
    ),
    Case(
        name="rows-overwritten-before-the-update",
        code="sparse-duplicates",
        phase="applied_gradient",
        variable=TABLE,
        fault=Fault(transform=on([TABLE], lambda v: overwrite([v]))),
    ),
    Case(
        name="rows-divided-by-their-count",
        code="sparse-averaged",
        phase="reduced_gradient",
        variable=TABLE,
        fault=Fault(reduce=reduce_some([TABLE], divide_rows)),
    ),
    Case(
        name="rows-divided-by-their-replicas",
        code="sparse-averaged",
        phase="reduced_gradient",
        variable=TABLE,
        fault=Fault(reduce=reduce_some([TABLE], divide_by_replicas)),
        setup={"replicas": 3},
    ),
    Case(
        name="sparse-mean-dense-sum",
        code="sparse-averaged",
        phase="reduced_gradient",
        variable=TABLE,
        fault=Fault(
            reduce=reduce_some([TABLE], lambda v: scale(add_values(v), 1 / len(v)))
        ),
    ),
    Case(
        name="rows-under-the-first-replicas-indices",
        code="sparse-rows",
        phase="reduced_gradient",
        variable=TABLE,
        fault=Fault(reduce=reduce_some([TABLE], under_first)),
    ),
    Case(
        name="rows-shifted",
        code="sparse-rows",
        phase="reduced_gradient",
        variable=TABLE,
        fault=Fault(reduce=reduce_some([TABLE], shift)),
    ),
    # Any phase.
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
    # Slots.
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
    # The update.
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
]


def clip_slices(value, norm):
    """What tf.clip_by_norm does: repeated rows are not added up for the norm."""
    slices = getattr(value, "values", value)
    size = float(np.linalg.norm(np.asarray(slices, np.float64)))
    return scale(value, min(1.0, norm / size))


def take_unit(value, length=1.0):
    return scale(value, length / float(np.linalg.norm(to_array(value))))


def add_rows(slices):
    rows = np.unique(slices.indices)
    dense = slices.to_dense().astype(slices.values.dtype)
    return SparseRows(indices=rows, values=dense[rows], shape=slices.shape)


def shift_rows(slices):
    return replace(slices, indices=(slices.indices + 1) % slices.shape[0])


def add_by_position(values):
    """The first replica's rows, with the slices of all in their order."""
    first = values[0]
    total = np.array(first.values)
    for other in values[1:]:
        count = min(len(total), len(other.values))
        total[:count] += other.values[:count]
    return SparseRows(indices=first.indices, values=total, shape=first.shape)


CASES += [
    Case(
        name="last-replica-overwrites-rows",
        code="sparse-duplicates",
        phase="reduced_gradient",
        variable=TABLE,
        fault=Fault(
            reduce=reduce_some([TABLE], lambda v: overwrite([add_rows(s) for s in v]))
        ),
        setup={"shards": (14, 2)},  # replica 1 must not have all rows
    ),
    Case(
        name="rows-of-one-replica-shifted",
        code="sparse-rows",
        phase="reduced_gradient",
        variable=TABLE,
        replicas=(1,),
        fault=Fault(
            reduce=reduce_some([TABLE], lambda v: add_values([v[0], shift_rows(v[1])]))
        ),
    ),
    Case(
        name="slices-added-by-position",
        code="sparse-rows",
        phase="reduced_gradient",
        variable=TABLE,
        fault=Fault(reduce=reduce_some([TABLE], add_by_position)),
        setup={"shards": (10, 6)},
    ),
    Case(
        name="penalty-lacks-in-a-program",
        code="regularizer-not-scaled",
        phase="local_gradient",
        variable=KERNEL,
        fault=Fault(penalty=lambda r, s: 1 / s.replicas if r == 0 else 0.0),
        setup={"penalty": 0.3, "shards_known": False},
    ),
    Case(
        name="norm-of-slices-clipped-first",
        code="clip-before-reduction",
        phase="reduced_gradient",
        fault=Fault(reduce=each(lambda v: clip_slices(v, 0.1))),
    ),
    Case(
        name="unit-norms-added-up",
        code="nonlinear-before-reduction",
        phase="reduced_gradient",
        fault=Fault(reduce=each(take_unit)),
        steps=2,  # in the first alone, every norm is above 1: a clip does the same
    ),
    Case(
        name="norms-made-equal-first",
        code="nonlinear-before-reduction",
        phase="reduced_gradient",
        fault=Fault(reduce=each(lambda v: take_unit(v, 37.0))),
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


ONE_OF_EACH = list({(c.code, c.phase): c for c in reversed(CASES)}.values())[::-1]
"""The first case of each code and phase; the sweeps run all."""
SETUPS = [dict(pairs) for pairs in dict.fromkeys(tuple(c.setup.items()) for c in CASES)]
"""What the faults are planted into, each once."""


def run_case(case: Case, **more: Any) -> Judgement:
    fault = case.fault
    if fault.transform == "stale":
        fault = replace(fault, transform=Stale())
    if fault.local == "stale":
        fault = replace(fault, local=Stale((KERNEL,)))
    return judge(observe(fault, **{**case.setup, "steps": case.steps, **more}))


def check_named(case: Case, judgement: Judgement) -> None:
    """The fault is named first and alone, in its place, as sure as can be."""
    assert judgement.findings, judgement
    first = judgement.findings[0]
    told = (first.code, first.phase, first.explanation)
    assert (first.code, first.phase) == (case.code, case.phase), told
    assert judgement.status is (Status.PASS if case.warning else Status.FAIL)
    assert first.warning is case.warning
    assert [f.code for f in judgement.findings] == [case.code], judgement.findings
    if case.variable is not None:
        assert first.variable == case.variable
    if case.replicas is not None:
        assert first.replicas == case.replicas
    if case.step is not None:
        assert first.step == case.step
    assert first.confidence > 0.9
    assert case.code in first.explanation


def check_passed(judgement: Judgement) -> None:
    assert judgement.status is Status.PASS, judgement
    assert judgement.findings == ()
