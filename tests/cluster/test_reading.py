"""What is kept of the batches that a pipeline gives: those that may be trained on."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import tensorflow as tf

from distbench.worker.subjects.pipeline import Epoch, read_epoch

pytestmark = pytest.mark.cluster


def _read(sizes: Sequence[int], steps: int = 3) -> Epoch:
    batches = (np.full((size, 2), place) for place, size in enumerate(sizes))
    return read_epoch(batches, tf.distribute.get_strategy(), steps)


@pytest.mark.parametrize(
    ("sizes", "places"),
    [
        ((4, 4, 4, 4, 4), (0, 1, 2, 4)),
        ((4, 4, 4, 3, 4, 2, 4), (0, 1, 2, 3, 6)),
        ((4, 3, 3, 4, 3), (0, 1, 2, 4)),
        ((4, 4, 4, 3), (0, 1, 2, 3)),
        ((4, 4), (0, 1)),
        ((4,), (0,)),
        ((), ()),
    ],
)
def test_the_first_ones_another_size_and_the_last_one_are_kept(
    sizes: tuple[int, ...], places: tuple[int, ...]
) -> None:
    epoch = _read(sizes)
    assert tuple(epoch.batches) == places
    assert all((part == place).all() for place, (part,) in epoch.batches.items())
    assert epoch.is_whole
    counted = [[len(examples) for examples in own] for own in epoch.seen]
    assert counted == ([list(sizes)] if sizes else [])


def test_the_last_one_that_is_counted_is_not_the_end_of_an_epoch() -> None:
    epoch = _read([2] * 600)
    assert tuple(epoch.batches) == (0, 1, 2)
    assert (len(epoch.seen[0]), epoch.is_whole) == (512, False)


def test_of_few_steps_three_batches_are_kept() -> None:
    """In how far examples follow from their batch shows in several."""
    assert tuple(_read([4] * 6, steps=1).batches) == (0, 1, 2, 5)


def test_no_more_batches_are_held_than_are_kept() -> None:
    made: list[weakref.ref] = []
    held = []

    def give() -> Iterator[np.ndarray]:
        for _ in range(20):
            batch = np.zeros((4, 2))
            made.append(weakref.ref(batch))
            held.append(sum(known() is not None for known in made))
            yield batch

    epoch = read_epoch(give(), tf.distribute.get_strategy(), 3)
    assert len(epoch.batches) == 4
    # And the one that is read while the one before it is the last.
    assert max(held) <= 6
