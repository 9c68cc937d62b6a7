"""What an input pipeline gives each replica: read before training, example by example.

The order in which a cluster reads its examples need not be that of one device. So the
cluster reads first, to the end of an epoch; the reference trains on what the replicas
got in each step, and the examples of the epoch are counted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from distbench.errors import BadInputError
from distbench.trace.archive import read_arrays, write_arrays
from distbench.worker.process.unsharded import leave_unsharded
from distbench.worker.stepping.program import count_batch, make_arrays
from distbench.worker.subjects.data_methods import list_data_methods
from distbench.worker.subjects.digests import Digests

_MOST_BATCHES = 512
"""Batches of an epoch that are read at most; what is longer is not counted."""
_BATCHES = 3
"""Batches of each replica that are kept at least: in how far its examples follow from
their batch shows in several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """What one task read: an epoch may be larger than the memory is.

    Attributes:
        batches: By place and local replica, a nest of arrays: what may be trained on.
        seen: By replica, or by worker of parameter servers, and batch: a digest of each
            example.
        is_whole: Whether the data set came to its end.
        lengths: How long examples are in each of their arrays; see `Digests`.
    """

    batches: Mapping[int, tuple[Any, ...]]
    seen: Sequence[Sequence[tuple[str, ...]]]
    is_whole: bool
    lengths: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalBatch:
    """What all replicas got in a step.

    Attributes:
        place: Its number in the epoch.
        batch: The replicas' shards, put together.
        shards: How many examples each replica got.
        is_padded: Whether a replica's examples were filled up to the longest of all.
    """

    place: int
    batch: Any
    shards: tuple[int, ...]
    is_padded: bool


class _Kept:
    """The first batches, the first one after them of another size, and the last one.

    The tasks of a cluster cannot ask each other for the sizes of their shards: that of
    some may stay the same. An epoch ends for all with the same batch.
    """

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._usual: set[tuple[int, ...]] = set()
        self._has_other = False
        self._found: dict[int, tuple[Any, ...]] = {}
        self._last: dict[int, tuple[Any, ...]] = {}
        self._count = 0

    def take(self, parts: tuple[Any, ...]) -> None:
        """Look at what the local replicas got next."""
        place, sizes = self._count, tuple(map(count_batch, parts))
        self._count += 1
        if place < self._steps:
            self._usual.add(sizes)
            self._found[place] = parts
            return
        if not self._has_other and sizes not in self._usual:
            self._has_other = True
            self._found[place] = parts
        self._last = {place: parts}

    def list_all(self, *, is_whole: bool) -> Mapping[int, tuple[Any, ...]]:
        """By place, in their order."""
        return self._found | self._last if is_whole else self._found


def read_epoch(
    batches: Any,
    strategy: tf.distribute.Strategy,
    steps: int,
    look: Callable[[Any, Sequence[str]], None] | None = None,
) -> Epoch:
    """Read a data set, distributed or not, to its end or as far as is counted.

    Args:
        batches: The data set.
        strategy: Under which it is read.
        steps: How many steps will be taken.
        look: Is shown each batch of a replica, and the digests of its examples.
    """
    kept = _Kept(max(steps, _BATCHES))
    digests = Digests()
    rows: list[list[tuple[str, ...]]] = []
    for batch in batches:
        local = strategy.experimental_local_results(batch)
        parts = tuple(map(make_arrays, local))
        kept.take(parts)
        rows.append(list(map(digests.make, parts)))
        if look is not None:
            for part, made in zip(parts, rows[-1], strict=True):
                look(part, made)
        if len(rows) == _MOST_BATCHES:
            break
    is_whole = len(rows) < _MOST_BATCHES
    return Epoch(
        batches=kept.list_all(is_whole=is_whole),
        seen=tuple(zip(*rows, strict=True)),
        is_whole=is_whole,
        lengths=digests.describe(),
    )


def read_worker_epochs(
    subject: Any, strategy: tf.distribute.Strategy, steps: int
) -> Epoch:
    """Read the data set of every worker that serves a chief, each to its end.

    They take turns: the k-th step trains on what the next worker in turn read next.

    Args:
        subject: As in `iterate`.
        strategy: That of the parameter servers.
        steps: How many steps will be taken.
    """
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    batches = iter(
        coordinator.create_per_worker_dataset(lambda: _distribute(subject, strategy))
    )
    read = tf.function(lambda iterator: next(iterator))
    digests = Digests()
    kept: _Kept | None = None
    seen: list[list[tuple[str, ...]]] = []
    is_whole = False
    for _ in range(_MOST_BATCHES):
        # No step can ask for its worker; what is made on each of them can.
        made = coordinator._create_per_worker_resources(read, args=(batches,))
        seen = seen or [[] for _ in made._values]
        kept = kept or _Kept(max(steps, _BATCHES * len(seen)))
        turn = []
        for own, remote in zip(seen, made._values, strict=True):
            with suppress(tf.errors.OutOfRangeError):
                turn.append(make_arrays(remote.fetch()))
                own.append(digests.make(turn[-1]))
        is_whole = not turn
        if is_whole:
            break
        # Whoever has come to its end takes no more turns, and nobody without it.
        for batch in turn if len(turn) == len(seen) else ():
            kept.take((batch,))
    batches_kept = {} if kept is None else kept.list_all(is_whole=is_whole)
    return Epoch(
        batches=batches_kept,
        seen=seen,
        is_whole=is_whole,
        lengths=digests.describe(),
    )


def write_epoch(epoch: Epoch, folder: Path, name: str) -> None:
    """Write the batches that may be trained on, and a digest of every example."""
    arrays = {
        f"{place}.{replica}.{number}": array
        for place, parts in epoch.batches.items()
        for replica, part in enumerate(parts)
        for number, array in enumerate(tf.nest.flatten(part))
    }
    write_arrays(arrays, folder / f"batches-{name}.npz")
    document = {
        "is_whole": epoch.is_whole,
        "lengths": epoch.lengths,
        "seen": epoch.seen,
    }
    (folder / f"examples-{name}.json").write_text(json.dumps(document), "utf-8")


def read_batches(
    folder: Path, names: Sequence[str], like: Any, steps: int
) -> tuple[GlobalBatch, ...]:
    """What all replicas got in each step, put together.

    That is the epoch from its start. A batch of another size, as the last one often is,
    takes the place of the last step if it comes later: what is right for many equal
    batches need not be right for that. Where each replica pads to the longest example
    of its own, all steps have the longest of all.

    Args:
        folder: Where `write_epoch` left it.
        names: Of the tasks, in their order.
        like: A nest of the structure of a batch.
        steps: How many batches are needed. Fewer come back of a shorter epoch.

    Raises:
        BadInputError: What the replicas got in a step has other axes for each.
    """
    by_place: dict[int, list[list[Any]]] = {}
    readers: Counter[int] = Counter()
    for name in names:
        for place, parts in read_parts(folder, name).items():
            by_place.setdefault(place, []).extend(parts)
            readers[place] += 1
    shards = {
        place: tuple(map(count_batch, parts))
        for place, parts in sorted(by_place.items())
        if readers[place] == len(names)
    }
    first, late = [*shards][:steps], [*shards][steps:]
    usual = {shards[place] for place in first}
    others = [place for place in late if shards[place] not in usual]
    if others and steps > 1:
        first[-1] = others[0]
    # Nobody trains on the rest, which need be no global batches.
    given = {place: [*zip(*by_place[place], strict=True)] for place in first}
    full = given
    if any(_differ(parts) for leaves in given.values() for parts in leaves):
        shapes = [_find_longest(leaf) for leaf in zip(*given.values(), strict=True)]
        full = {
            place: [
                tuple(pad_array(part, (len(part), *shape)) for part in parts)
                for parts, shape in zip(leaves, shapes, strict=True)
            ]
            for place, leaves in given.items()
        }
    return tuple(
        GlobalBatch(
            place=place,
            batch=tf.nest.pack_sequence_as(like, list(map(np.concatenate, leaves))),
            shards=shards[place],
            # Nothing that has its shape is copied.
            is_padded=any(
                new is not old
                for pair in zip(leaves, given[place], strict=True)
                for new, old in zip(*pair, strict=True)
            ),
        )
        for place, leaves in full.items()
    )


def _differ(parts: Sequence[Any]) -> bool:
    """Whether replicas got examples of other shapes in an array of a batch."""
    return len({part.shape[1:] for part in parts}) > 1


def _find_longest(leaf: Sequence[Sequence[Any]]) -> tuple[int, ...]:
    """The shape that has room for each example of an array, of all steps and replicas.

    Raises:
        BadInputError: They have other axes.
    """
    shapes = {part.shape[1:] for parts in leaf for part in parts}
    if len({*map(len, shapes)}) > 1:
        raise BadInputError(
            "An array of a batch must have as many axes on all replicas. Received: "
            f"examples of the shapes {', '.join(map(str, sorted(shapes)))}, which are "
            "no global batch that one device could train on."
        )
    return tuple(map(max, zip(*shapes, strict=True)))


def pad_array(array: Any, shape: tuple[int, ...]) -> Any:
    """An array filled up to a shape at the end of each axis, by 0 or empty text."""
    if array.shape == shape:
        return array
    full = np.full(shape, b"" if array.dtype.kind in "OS" else 0, array.dtype)
    full[tuple(map(slice, array.shape))] = array
    return full


def read_parts(folder: Path, name: str) -> dict[int, list[list[Any]]]:
    """What `write_epoch` left of a task: arrays by step, replica and place in the nest.

    Args:
        folder: Where it left it.
        name: Of the task.
    """
    found: dict[int, dict[int, dict[int, Any]]] = {}
    for key, array in read_arrays(folder / f"batches-{name}.npz").items():
        step, replica, number = map(int, key.split("."))
        found.setdefault(step, {}).setdefault(replica, {})[number] = array
    return {
        step: [
            [leaves[n] for n in sorted(leaves)] for _, leaves in sorted(parts.items())
        ]
        for step, parts in found.items()
    }


def iterate(subject: Any, strategy: tf.distribute.Strategy) -> Iterator[Any]:
    """The batches of a program under a strategy, as a user's own loop gets them.

    Args:
        subject: Has `dataset_fn(input_context)`, or `dataset()`, which the strategy
            shards as its options say.
        strategy: The default one, or that of a cluster.
    """
    is_single = not tf.distribute.has_strategy() and strategy.num_replicas_in_sync == 1
    if not is_single:
        return iter(_distribute(subject, strategy))
    with leave_unsharded():
        if "dataset_fn" in list_data_methods(subject):
            return iter(_make_from_function(subject, tf.distribute.InputContext()))
        return iter(_make_dataset(subject))


def _distribute(subject: Any, strategy: tf.distribute.Strategy) -> Any:
    if "dataset_fn" in list_data_methods(subject):
        return strategy.distribute_datasets_from_function(
            partial(_make_from_function, subject)
        )
    return strategy.experimental_distribute_dataset(_make_dataset(subject))


def _make_from_function(subject: Any, context: Any) -> tf.data.Dataset:
    return _check_dataset(subject.dataset_fn(context), "dataset_fn(input_context)")


def _make_dataset(subject: Any) -> tf.data.Dataset:
    return _check_dataset(subject.dataset(), "dataset()")


def _check_dataset(dataset: Any, name: str) -> tf.data.Dataset:
    if not isinstance(dataset, tf.data.Dataset):
        raise BadInputError(
            f"{name} must return a tf.data.Dataset. Received: an object of type "
            f"'{type(dataset).__name__}'."
        )
    return dataset
