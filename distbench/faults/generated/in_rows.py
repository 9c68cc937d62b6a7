"""Mistakes with a table's gradient, of which only some rows exist."""

from __future__ import annotations

import numpy as np

from distbench.faults.generated.mistake import Drawn, mistake
from distbench.samples.lazy import tf
from distbench.samples.replicas import (
    all_reduce,
    count_replicas,
    find_replica,
    gather,
)
from distbench.samples.slices import add_up_rows

_PHASE = "reduced_gradient"


def _draw_table(rng, facts, combine):
    """A table of which a wrong way of adding slices gives what nothing else does."""
    if not facts.reduces or not facts.dense:
        return None
    tables = [
        name
        for name in facts.plan.problem.list_sparse()
        if _is_telling(facts, name, combine)
    ]
    if not tables:
        return None
    name = str(rng.choice(tables))
    return Drawn(variables=(name,), numbers={"table": name})


def _is_telling(facts, name, combine):
    """Whether the result is neither right nor the replicas' sum with other weights."""
    parts = [term.slices[name] for term in facts.terms]
    wrong = combine(parts, facts.total(name).shape)
    terms = np.stack([term.dense[name].ravel() for term in facts.terms], axis=1)
    weights, *_ = np.linalg.lstsq(terms, wrong.ravel(), rcond=None)
    rest = np.linalg.norm(wrong.ravel() - terms @ weights)
    off = np.linalg.norm(wrong - facts.total(name))
    return min(rest, off) > 0.05 * np.linalg.norm(facts.total(name))


def _add(rows, values, shape):
    total = np.zeros(shape)
    np.add.at(total, rows, values)
    return total


def _add_each(parts, shape):
    """Rows and their sums of each replica."""
    found = []
    for part in parts:
        rows = np.unique(part.rows)
        found.append((rows, _add(part.rows, part.values, shape)[rows]))
    return found


def _count(rows, shape):
    return np.maximum(np.bincount(rows, minlength=shape[0]), 1)[:, np.newaxis]


class OwnRows:
    """One table's slices are combined by the user, other gradients are summed."""

    table = ""

    def reduce(self, gradients):
        if count_replicas() == 1:
            return super().reduce(gradients)
        place = self.plan.order.index(self.table)
        rest = [g for number, g in enumerate(gradients) if number != place]
        reduced = super().reduce(rest)
        reduced.insert(place, self.reduce_rows(gradients[place]))
        return reduced

    def shape(self):
        return tuple(self.model[self.table].shape)

    def add_repeated(self, slices):
        """The replica's own repeated rows added up."""
        total = add_up_rows(slices)
        return total.indices, total.values

    def assign(self, rows, values):
        """Of slices for the same row the last one counts."""
        empty = tf.zeros(self.shape(), self.dtype)
        return tf.tensor_scatter_nd_update(empty, rows[:, tf.newaxis], values)


def _last_replica(parts, shape):
    total = np.zeros(shape)
    for rows, values in _add_each(parts, shape):
        total[rows] = values
    return total


@mistake("sparse-duplicates", _PHASE, like="horovod/horovod#2279")
class LastReplicaCounts(OwnRows):
    """Of the replicas that have a row the last one counts."""

    @staticmethod
    def draw(rng, facts):
        return _draw_table(rng, facts, _last_replica)

    def reduce_rows(self, slices):
        rows, values = self.add_repeated(slices)
        return self.assign(gather(rows), gather(values))


def _first_replica(parts, shape):
    return _last_replica(parts[::-1], shape)


@mistake("sparse-duplicates", _PHASE, like="horovod/horovod#3786")
class FirstReplicaCounts(OwnRows):
    """Of the replicas that have a row the first one counts."""

    @staticmethod
    def draw(rng, facts):
        return _draw_table(rng, facts, _first_replica)

    def reduce_rows(self, slices):
        rows, values = self.add_repeated(slices)
        return self.assign(gather(rows)[::-1], gather(values)[::-1])


def _last_slices(parts, shape):
    total = np.zeros(shape)
    for part in parts:
        own = np.zeros(shape)
        own[part.rows] = part.values
        total += own
    return total


@mistake("sparse-duplicates", _PHASE, like="tensorflow/tensorflow#5252")
class LastSliceOfReplicaCounts(OwnRows):
    """Of a replica's slices for the same row the last one counts."""

    @staticmethod
    def draw(rng, facts):
        return _draw_table(rng, facts, _last_slices)

    def reduce_rows(self, slices):
        return all_reduce("sum", self.assign(slices.indices, slices.values))


def _by_owners(parts, shape):
    rows = np.concatenate([rows for rows, _ in _add_each(parts, shape)])
    total = sum(_add(part.rows, part.values, shape) for part in parts)
    return total / _count(rows, shape)


@mistake("sparse-averaged", _PHASE, like="tensorflow/tensorflow#5252")
class DividedByOwners(OwnRows):
    """Every row is divided by the number of replicas that have it."""

    @staticmethod
    def draw(rng, facts):
        return _draw_table(rng, facts, _by_owners)

    def reduce_rows(self, slices):
        rows, values = self.add_repeated(slices)
        rows, values = gather(rows), gather(values)
        total = tf.math.unsorted_segment_sum(values, rows, self.shape()[0])
        ones = tf.ones_like(values)
        count = tf.math.unsorted_segment_sum(ones, rows, self.shape()[0])
        return total / tf.maximum(count, 1)


def _by_slices(parts, shape):
    rows = np.concatenate([part.rows for part in parts])
    values = np.concatenate([part.values for part in parts])
    return _add(rows, values, shape) / _count(rows, shape)


@mistake("sparse-averaged", _PHASE, like="horovod/horovod#2279")
class DividedBySlices(OwnRows):
    """Every row is divided by the number of its slices over all replicas."""

    @staticmethod
    def draw(rng, facts):
        return _draw_table(rng, facts, _by_slices)

    def reduce_rows(self, slices):
        rows, values = gather(slices.indices), gather(slices.values)
        total = tf.math.unsorted_segment_sum(values, rows, self.shape()[0])
        ones = tf.ones_like(values)
        count = tf.math.unsorted_segment_sum(ones, rows, self.shape()[0])
        return total / tf.maximum(count, 1)


def _by_own_slices(parts, shape):
    return sum(
        _add(part.rows, part.values, shape) / _count(part.rows, shape) for part in parts
    )


@mistake("sparse-averaged", _PHASE, like="horovod/horovod#3786")
class DividedByOwnSlices(OwnRows):
    """Every replica divides a row by the number of its own slices."""

    @staticmethod
    def draw(rng, facts):
        return _draw_table(rng, facts, _by_own_slices)

    def reduce_rows(self, slices):
        rows, place = tf.unique(slices.indices)
        count = tf.size(rows)
        means = tf.math.unsorted_segment_mean(slices.values, place, count)
        return all_reduce("sum", tf.IndexedSlices(means, rows, slices.dense_shape))


def _shifted(parts, shape):
    return np.roll(sum(_add(p.rows, p.values, shape) for p in parts), 1, axis=0)


@mistake("sparse-rows", _PHASE, like="deepspeedai/DeepSpeed#5105")
class RowsShifted(OwnRows):
    """Row numbers are one too large, on all replicas or on one."""

    @staticmethod
    def draw(rng, facts):
        drawn = _draw_table(rng, facts, _shifted)
        if drawn is None or rng.random() < 0.5:
            return drawn
        replica = facts.pick_replica(rng)
        return Drawn(
            variables=drawn.variables,
            replicas=(replica,),
            numbers={**drawn.numbers, "replica": replica},
        )

    replica = None

    def reduce_rows(self, slices):
        shift = 1 if self.replica in (None, find_replica()) else 0
        rows = (slices.indices + shift) % self.shape()[0]
        return all_reduce(
            "sum", tf.IndexedSlices(slices.values, rows, slices.dense_shape)
        )


def _by_position(parts, shape):
    most = max(len(part.rows) for part in parts)
    total = np.zeros((most, shape[1]))
    rows = np.zeros(most, int)
    rows[: len(parts[0].rows)] = parts[0].rows
    for part in parts:
        total[: len(part.values)] += part.values
    # Where the first replica has no slice left the row stays 0.
    return _add(rows, total, shape)


@mistake("sparse-rows", _PHASE, like="tensorflow/tensorflow#5252")
class AddedByPosition(OwnRows):
    """Slices are added by position, as if all replicas had the first one's rows."""

    @staticmethod
    def draw(rng, facts):
        return _draw_table(rng, facts, _by_position)

    def reduce_rows(self, slices):
        words = next(
            t.words
            for t in self.plan.problem.tables
            if self.table.startswith(f"{t.name}/")
        )
        most = self.examples * words
        rest = most - tf.shape(slices.indices)[0]
        values = tf.pad(slices.values, [[0, rest], [0, 0]])
        rows = tf.pad(slices.indices, [[0, rest]])
        if find_replica() > 0:
            rows = tf.zeros_like(rows)
        total = all_reduce("sum", tf.ensure_shape(values, [most, self.shape()[1]]))
        first = all_reduce("sum", tf.ensure_shape(rows, [most]))
        return tf.IndexedSlices(total, first, slices.dense_shape)
