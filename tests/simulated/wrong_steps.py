"""What a faulty step does: to gradients, to their sum, to slots and variables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from gradient_values import add_up, add_values, map_values, scale, to_array
from training_simulator import (
    BIAS,
    HEAD,
    TRAINED,
    Fault,
    Setup,
    Simulation,
    observe,
    reduce_with,
)

from distbench.diagnose.judge import judge
from distbench.trace import SparseRows


def of(r: int, setup: Setup) -> float:
    shards = Simulation(setup).shards
    return sum(shards) / shards[r]


def on(paths, change):
    """A change of some variables' gradients."""
    return lambda gradients, *rest: {
        k: change(v) if k in paths else v for k, v in gradients.items()
    }


def take_rule(rule):
    """An update by another rule than one device's."""
    return lambda new, old, gradients, run: rule.update(old, gradients)


def judge_rule(rule, due, **setup):
    """What is found where a cluster has another rule than one device."""
    fault = Fault(update=take_rule(rule))
    return judge(observe(fault, rule=due, **{"replicas": 2, **setup})).findings


def find_in_slots(rule, due):
    """What is found there, if it is one finding and its slots are wrong first."""
    (finding,) = judge_rule(rule, due, steps=3)
    assert finding.phase == "slot"
    return finding


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


def add_to_each(added):
    """Add an array to the gradients of some variables."""
    return lambda gradients: {
        k: (v + added[k]).astype(v.dtype) if k in added else v
        for k, v in gradients.items()
    }


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


def turn_buffer(gradients, places=3):
    """Every piece of a buffer of all gradients begins too early."""
    dense = {path: to_array(gradients[path]) for path in TRAINED}
    flat = np.roll(np.concatenate([v.ravel() for v in dense.values()]), places)
    ends = np.cumsum([v.size for v in dense.values()])[:-1]
    pieces = zip(dense.items(), np.split(flat, ends), strict=True)
    return {path: piece.reshape(v.shape) for (path, v), piece in pieces}


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


def feed_late(new, old, gradients, run):
    """The rule takes the gradient of the step before, whatever it is given."""
    kept[run.replica, run.step] = gradients
    none = {k: 0 * to_array(v) for k, v in gradients.items()}
    late = kept.get((run.replica, run.step - 1), none) if run.step else none
    return run.rule.update(old, late)


kept = {}
"""What `feed_late` was given, by replica and step."""


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


def divide_rows_each(values):
    return add_values([divide_rows([value]) for value in values])


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


def feed_back(send):
    """Each replica sends a part, and adds what it kept to its next gradient."""

    def reduce(locals_, step):
        if step == 0:
            kept.clear()
        due = [
            {k: to_array(g[k]) + kept.get((r, k), 0) for k in g}
            for r, g in enumerate(locals_)
        ]
        sent = [{k: send([v]) for k, v in g.items()} for g in due]
        for r, g in enumerate(due):
            kept.update({(r, k): v - sent[r][k] for k, v in g.items()})
        total = {k: add_values([g[k] for g in sent]) for k in sent[0]}
        return [total for _ in locals_]

    kept = {}
    return reduce


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
