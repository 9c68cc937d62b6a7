"""What an input pipeline gives each replica: read before training, example by example.

The order in which a cluster reads its examples need not be that of one device. So the
cluster reads first, to the end of an epoch; the reference trains on what the replicas
got in each step, and the examples of the epoch are counted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from distbench.errors import BadInputError
from distbench.worker.state.unsharded import leave_unsharded
from distbench.worker.stepping.program import count_batch
from distbench.worker.subjects.batches import digest_batch

_MOST_BATCHES = 512
"""Batches of an epoch that are read at most; what is longer is not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """What one task read.

    Attributes:
        batches: By batch and local replica, a nest of arrays: what is trained on.
        readers: By replica, or by worker of parameter servers, and batch: the same.
        is_whole: Whether the data set came to its end.
    """

    batches: tuple[tuple[Any, ...], ...]
    readers: tuple[tuple[Any, ...], ...]
    is_whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalBatch:
    """What all replicas got in a step.

    Attributes:
        place: Its number in the epoch.
        batch: The replicas' shards, put together.
        shards: How many examples each replica got.
    """

    place: int
    batch: Any
    shards: tuple[int, ...]


def read_epoch(batches: Any, strategy: tf.distribute.Strategy) -> Epoch:
    """Read a data set, distributed or not, to its end or as far as is counted."""
    found: list[tuple[Any, ...]] = []
    for batch in batches:
        parts = strategy.experimental_local_results(batch)
        found.append(tuple(tf.nest.map_structure(np.asarray, part) for part in parts))
        if len(found) == _MOST_BATCHES:
            break
    return Epoch(
        batches=tuple(found),
        readers=tuple(zip(*found, strict=True)),
        is_whole=len(found) < _MOST_BATCHES,
    )


def read_worker_epochs(subject: Any, strategy: tf.distribute.Strategy) -> Epoch:
    """Read the data set of every worker that serves a chief, each to its end.

    A coordinator gives a step to whichever worker is free. Here they take turns: the
    k-th step trains on what the next worker in turn read next.

    Args:
        subject: As in `iterate`.
        strategy: That of the parameter servers.
    """
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    batches = iter(
        coordinator.create_per_worker_dataset(lambda: _distribute(subject, strategy))
    )
    read = tf.function(lambda iterator: next(iterator))
    workers: list[list[Any]] = []
    is_whole = False
    for _ in range(_MOST_BATCHES):
        # No step can ask for its worker; what is made on each of them can.
        made = coordinator._create_per_worker_resources(read, args=(batches,))
        workers = workers or [[] for _ in made._values]
        is_whole = True
        for own, remote in zip(workers, made._values, strict=True):
            with suppress(tf.errors.OutOfRangeError):
                own.append(remote.fetch())
                is_whole = False
        if is_whole:
            break
    turns = min(map(len, workers))
    return Epoch(
        batches=tuple((own[turn],) for turn in range(turns) for own in workers),
        readers=tuple(map(tuple, workers)),
        is_whole=is_whole,
    )


def _digest_examples(batch: Any) -> tuple[str, ...]:
    """A text for each example: equal for equal ones, in any process and batch."""
    return tuple(
        digest_batch(tf.nest.map_structure(lambda a, i=i: a[i], batch))
        for i in range(count_batch(batch))
    )


def write_epoch(epoch: Epoch, folder: Path, name: str, steps: int) -> None:
    """Write the batches that may be trained on, and a digest of every example."""
    arrays = {
        f"{place}.{replica}.{number}": array
        for place in _list_kept(epoch, steps)
        for replica, part in enumerate(epoch.batches[place])
        for number, array in enumerate(tf.nest.flatten(part))
    }
    np.savez(folder / f"batches-{name}.npz", **arrays)
    seen = [[_digest_examples(batch) for batch in own] for own in epoch.readers]
    document = {"is_whole": epoch.is_whole, "seen": seen}
    (folder / f"examples-{name}.json").write_text(json.dumps(document), "utf-8")


def _list_kept(epoch: Epoch, steps: int) -> list[int]:
    """The first batches, the first one after them of another size, and the last one.

    The tasks of a cluster cannot ask each other for the sizes of their shards: that of
    some may stay the same. An epoch ends for all with the same batch.
    """
    sizes = [tuple(map(count_batch, parts)) for parts in epoch.batches]
    late = range(steps, len(sizes))
    others = [place for place in late if sizes[place] not in sizes[:steps]][:1]
    ends = late[-1:] if epoch.is_whole else ()
    return sorted({*range(len(sizes))[:steps], *others, *ends})


def read_batches(
    folder: Path, names: Sequence[str], like: Any, steps: int
) -> tuple[GlobalBatch, ...]:
    """What all replicas got in each step, put together.

    That is the epoch from its start. A batch of another size, as the last one often is,
    takes the place of the last step if it comes later: what is right for many equal
    batches need not be right for that.

    Args:
        folder: Where `write_epoch` left it.
        names: Of the tasks, in their order.
        like: A nest of the structure of a batch.
        steps: How many batches are needed. Fewer come back of a shorter epoch.

    Raises:
        BadInputError: What the replicas got in a step has other shapes for each.
    """
    by_place: dict[int, list[list[Any]]] = {}
    readers: Counter[int] = Counter()
    for name in names:
        with np.load(folder / f"batches-{name}.npz") as arrays:
            for place, parts in _group(arrays).items():
                by_place.setdefault(place, []).extend(parts)
                readers[place] += 1
    found = [
        GlobalBatch(
            place=place,
            batch=tf.nest.pack_sequence_as(
                like, [_join(place, p) for p in zip(*parts, strict=True)]
            ),
            shards=tuple(map(count_batch, parts)),
        )
        for place, parts in sorted(by_place.items())
        if readers[place] == len(names)
    ]
    first, late = found[:steps], found[steps:]
    usual = {batch.shards for batch in first}
    others = [batch for batch in late if batch.shards not in usual]
    if others and steps > 1:
        first[-1] = others[0]
    return tuple(first)


def _join(place: int, parts: Sequence[Any]) -> Any:
    """The replicas' shards of one array, as a global batch."""
    shapes = [part.shape[1:] for part in parts]
    if len(set(shapes)) > 1:
        raise BadInputError(
            f"In batch {place} the replicas got examples of the shapes "
            f"{', '.join(map(str, shapes))}, which are no global batch that one device "
            "could train on. Expected: one shape. Pad to the same length on all "
            "replicas, as padded_batch(..., padded_shapes=[LENGTH]) does; an open "
            "length becomes that of the longest example of each replica's own batch."
        )
    return np.concatenate(parts)


def _group(arrays: Any) -> dict[int, list[list[Any]]]:
    """Arrays by step, replica of the task and place in the nest."""
    found: dict[int, dict[int, dict[int, Any]]] = {}
    for key in arrays.files:
        step, replica, number = map(int, key.split("."))
        found.setdefault(step, {}).setdefault(replica, {})[number] = arrays[key]
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
        if hasattr(subject, "dataset_fn"):
            return iter(_make_from_function(subject, tf.distribute.InputContext()))
        return iter(_make_dataset(subject))


def _distribute(subject: Any, strategy: tf.distribute.Strategy) -> Any:
    if hasattr(subject, "dataset_fn"):
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
