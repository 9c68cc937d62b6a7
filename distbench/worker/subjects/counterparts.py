"""What one device reads in the place of examples that it does not have as they are.

An example of a replica that one device never reads was drawn, or follows from its
batch, or from its shard. To tell these apart it is held against one device's. Which
belong together is told by the arrays that they have alike, such as the label, or by the
places where a shard has its examples.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.util import nest

from distbench.trace.archive import write_arrays
from distbench.worker.subjects.batches import digest_batch
from distbench.worker.subjects.pipeline import pad_array, read_parts

_ROWS = 32
"""Examples of a batch that are asked for theirs: laws show in a few."""
_MOST = 8192
"""Examples of one device that are looked at: of endless ones all may be others."""
_COLUMNS = 4096
"""Numbers of an array of an example that are kept at most: the same of all readers."""
_PLACES = ("own", "every", "block")
"""Where an example may be found by its place: as the same one of an epoch of its own,
as one of every N-th, or of a share without a gap."""

Leaves = tuple[Any, ...]
"""The arrays of one example."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Example:
    """One that a replica read.

    Attributes:
        reader: Its replica, or worker of parameter servers.
        step: Number of the global batch, of those that may be trained on.
        row: Its number in that.
        batch: Number of its batch among those of the reader.
        place: Its own number among the examples of the reader.
        digest: As in `Epoch`.
        leaves: Its arrays.
    """

    reader: int
    step: int
    row: int
    batch: int
    place: int
    digest: str
    leaves: Leaves


class Counterparts:
    """Looks, while one device reads, for what belongs to what the replicas read.

    Args:
        folder: Where `write_epoch` left it.
        names: Of the tasks that read, in their order.
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._read: list[set[str]] = []
        self._lengths: list[int] = []
        self._in_turn = False
        self._sizes: Counter[int] = Counter()
        self._examples: list[_Example] = []
        for name in names:
            self._take_task(folder, name)
        self._known = set().union(*self._read)
        # Of examples that are shared out no other reader has to have this one.
        self._settled = set.intersection(*self._read) if self._in_turn else self._known
        self._by_key = _map_keys(self._examples)
        self._by_place = self._map_places()
        self._found: dict[tuple[str, str], dict[str, Leaves]] = {}
        self._copies: dict[str, Leaves] = {}
        self._has: set[str] = set()
        self._names: list[str] = []
        self._count = 0
        self._looked = 0

    def take(self, batch: Any, digests: Sequence[str]) -> None:
        """Look at a batch that one device reads.

        Args:
            batch: A nest of arrays.
            digests: Of its examples.
        """
        self._names = [name for name, _ in nest.flatten_with_joined_string_paths(batch)]
        arrays = tf.nest.flatten(batch)
        for row, digest in enumerate(digests):
            place, self._count = self._count, self._count + 1
            if digest in self._known:
                self._has.add(digest)
            if digest in self._settled or self._looked == _MOST:
                continue
            self._looked += 1
            leaves = tuple(array[row] for array in arrays)
            for way, key in _make_keys(leaves).items():
                for example in self._by_key.get((way, key), ()):
                    self._keep(way, example, digest, leaves)
            for way, example in self._by_place.get(place, ()):
                self._keep(way, example, digest, leaves)

    def write(self, folder: Path) -> None:
        """Write the pairs, if there is an example that one device does not have."""
        if all(example.digest in self._has for example in self._examples):
            return
        arrays: dict[str, Any] = {"names": np.array(self._names, object)}
        for way in self._ways:
            for reader in range(len(self._lengths)):
                asked = sum(example.reader == reader for example in self._examples)
                pairs = list(self._pair(way, reader))
                if not pairs:
                    continue
                arrays[f"{way}.{reader}.batches"] = np.array([p[0] for p in pairs])
                arrays[f"{way}.{reader}.asked"] = np.array(asked)
                for leaf in range(len(self._names)):
                    both = _stack([(seen[leaf], due[leaf]) for _, seen, due in pairs])
                    arrays[f"{way}.{reader}.{leaf}.seen"] = both[0]
                    arrays[f"{way}.{reader}.{leaf}.due"] = both[1]
        write_arrays(arrays, folder / "counterparts.npz")

    def exchange(self, place: int, batch: Any) -> Any | None:
        """A global batch with what one device reads in the place of what it lacks.

        Args:
            place: Number of the batch, of those that may be trained on.
            batch: A nest of arrays.

        Returns:
            A batch of the same shapes; None if it is the same one.
        """
        found = {
            example.row: due
            for example in self._examples
            if example.step == place
            and example.digest not in self._has
            and (due := self._find(example)) is not None
        }
        if not found:
            return None
        arrays = [np.array(array) for array in tf.nest.flatten(batch)]
        for row, due in found.items():
            for array, leaf in zip(arrays, due, strict=True):
                array[row] = pad_array(leaf, array.shape[1:])[()]
        return tf.nest.pack_sequence_as(batch, arrays)

    def _find(self, example: _Example) -> Leaves | None:
        """The surest counterpart that has the same shapes."""
        shapes = [np.shape(leaf) for leaf in example.leaves]
        for way in self._ways:
            kept = self._found.get((way, example.digest), {})
            if len(kept) == 1:
                (due,) = kept.values()
                if [np.shape(leaf) for leaf in due] == shapes:
                    return due
        return None

    def _take_task(self, folder: Path, name: str) -> None:
        path = folder / f"examples-{name}.json"
        seen = json.loads(path.read_text("utf-8"))["seen"]
        first, readers = len(self._lengths), len(seen)
        for own in seen:
            self._read.append({digest for batch in own for digest in batch})
            self._lengths.append(sum(map(len, own)))
        for place, parts in sorted(read_parts(folder, name).items()):
            for part, arrays in enumerate(parts):
                # The workers of parameter servers take turns.
                self._in_turn = len(parts) < readers
                reader = place % readers if self._in_turn else part
                number = place // readers if self._in_turn else place
                before = sum(map(len, seen[reader][:number]))
                start = self._sizes[place]
                self._sizes[place] += len(seen[reader][number])
                for row, digest in enumerate(seen[reader][number][:_ROWS]):
                    self._examples.append(
                        _Example(
                            reader=first + reader,
                            step=place,
                            row=start + row,
                            batch=number,
                            place=before + row,
                            digest=digest,
                            leaves=tuple(array[row] for array in arrays),
                        )
                    )

    def _map_places(self) -> Mapping[int, Sequence[tuple[str, _Example]]]:
        """By their number on one device: those that may belong there."""
        found: dict[int, list[tuple[str, _Example]]] = {}
        for example in self._examples:
            places = (
                example.place,
                example.place * len(self._lengths) + example.reader,
                example.place + sum(self._lengths[: example.reader]),
            )
            for way, place in zip(_PLACES, places, strict=True):
                found.setdefault(place, []).append((way, example))
        return found

    def _keep(self, way: str, example: _Example, digest: str, leaves: Leaves) -> None:
        if example.digest in self._has:
            return
        copies = self._copies
        kept = self._found.setdefault((way, example.digest), {})
        if len(kept) < 2:  # two are as good as many: none is known to be the one
            if digest not in copies:
                copies[digest] = tuple(map(_copy, leaves))
            kept.setdefault(digest, copies[digest])

    @cached_property
    def _ways(self) -> Sequence[str]:
        """The arrays by which most are found, and the places."""
        counts: dict[str, int] = {}
        for (way, _), kept in self._found.items():
            counts[way] = counts.get(way, 0) + (len(kept) == 1)
        by_key = sorted((w for w in counts if w not in _PLACES), key=counts.__getitem__)
        return (*by_key[-1:], *_PLACES)

    def _pair(self, way: str, reader: int) -> Iterator[tuple[int, Leaves, Leaves]]:
        """Batch, arrays and their counterparts of each example that has any."""
        for example in self._examples:
            if example.reader != reader:
                continue
            if example.digest in self._has:
                yield example.batch, example.leaves, example.leaves
                continue
            kept = self._found.get((way, example.digest), {})
            if len(kept) != 1:
                continue
            (due,) = kept.values()
            levelled = [_level(*both) for both in zip(example.leaves, due, strict=True)]
            if all(both is not None for both in levelled):
                seen, due = zip(*levelled, strict=True)
                yield example.batch, seen, due


def _copy(leaf: Any) -> Any:
    # As an array of its own kind, text would lose what is 0 at its end.
    return np.array(leaf, object if isinstance(leaf, bytes) else None)


def _make_keys(leaves: Leaves) -> Mapping[str, str]:
    """By way, what an example has of it: each array, and all but each of them."""
    digests = [digest_batch(leaf) for leaf in leaves]
    if len(digests) < 2:
        return {}
    alone = {f"by {n}": digest for n, digest in enumerate(digests)}
    others = {
        f"without {n}": "".join(digests[:n] + digests[n + 1 :])
        for n in range(len(digests))
    }
    return alone | others


def _map_keys(
    examples: Sequence[_Example],
) -> Mapping[tuple[str, str], Sequence[_Example]]:
    """By way and key, of each reader the only example that has it."""
    found: dict[tuple[str, str], dict[int, _Example | None]] = {}
    for example in examples:
        for pair in _make_keys(example.leaves).items():
            own = found.setdefault(pair, {})
            other = own.setdefault(example.reader, example)
            if other is not None and other.digest != example.digest:
                own[example.reader] = None
    return {pair: [e for e in own.values() if e] for pair, own in found.items()}


def _level(seen: Any, due: Any) -> tuple[Any, Any] | None:
    """Two arrays in one shape, where one is the longer by its padding; None if not."""
    seen, due = _make_plain(seen), _make_plain(due)
    # Text is as wide as the longest one.
    if seen.dtype.type is not due.dtype.type or seen.ndim != due.ndim:
        return None
    if seen.shape == due.shape:
        return seen, due
    common = tuple(map(slice, map(min, zip(seen.shape, due.shape, strict=True))))
    shape = tuple(map(max, zip(seen.shape, due.shape, strict=True)))
    for array in (seen, due):
        rest = np.ones(array.shape, bool)
        rest[common] = False
        # Whether another value than 0 belongs to the example nobody can tell.
        if not (array[rest] == np.zeros(1, array.dtype)).all():
            return None
    return pad_array(seen, shape), pad_array(due, shape)


def _stack(pairs: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Two arrays [examples, numbers] of pairs, where all have as many numbers."""
    shapes = [np.shape(seen) for seen, _ in pairs]
    longest = tuple(map(max, zip(*shapes, strict=True)))
    rows = tuple(
        [pad_array(_make_plain(pair[side]), longest) for pair in pairs]
        for side in (0, 1)
    )
    seen, due = (np.reshape(side, (len(pairs), -1)) for side in rows)
    return seen[:, :_COLUMNS], due[:, :_COLUMNS]


def _make_plain(array: Any) -> Any:
    """An array that has no Python objects, as text does."""
    array = np.asarray(array)
    return array.astype("S") if array.dtype.hasobject else array
