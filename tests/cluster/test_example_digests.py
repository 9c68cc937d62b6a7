"""By which text an example is known, however long its batch is."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from distbench.examples import are_filled_by_zeros
from distbench.worker.subjects.digests import Digests, measure_filled

pytestmark = pytest.mark.cluster


def _pad(rows, length, filled=0):
    return np.array([[*row, *[filled] * (length - len(row))] for row in rows])


@pytest.mark.parametrize("dtype", ["int32", "float32", ml_dtypes.bfloat16, object])
def test_equal_examples_are_known_in_batches_of_other_lengths(dtype) -> None:
    kind = (
        (lambda a: a.astype("S").astype(object)) if dtype is object else (lambda a: a)
    )
    filled = b"" if dtype is object else 0
    rows = [[3, 1], [2], [3]]
    digests = Digests()
    seen = [
        digests.make((kind(_pad(rows, length, filled)).astype(dtype), np.arange(3)))
        for length in (2, 5)
    ]
    assert seen[0] == seen[1]
    assert len({*seen[0]}) == 3
    assert are_filled_by_zeros([digests.describe()])


def test_what_is_filled_up_by_another_value_is_not_sure() -> None:
    rows = [[3, 1], [2], [3]]
    digests = Digests()
    assert digests.make(_pad(rows, 2, -1)) != digests.make(_pad(rows, 4, -1))
    assert not are_filled_by_zeros([digests.describe()])


def test_readers_are_held_against_each_other() -> None:
    """Each has batches of one length, and together they have two."""
    readers = []
    for length in (2, 3):
        readers.append(Digests())
        readers[-1].make(_pad([[3, 1], [2], [3]], length, -1))
        assert are_filled_by_zeros([readers[-1].describe()])
    assert not are_filled_by_zeros([one.describe() for one in readers])


def test_batches_of_one_length_and_lone_examples_are_sure() -> None:
    digests = Digests()
    for length in (3, 5):
        digests.make((np.ones((1, length)), np.ones((1, 4), bool)))
        digests.make((np.ones((1, length)), np.ones((1, 4), bool)))
    assert are_filled_by_zeros([digests.describe()])


def test_each_axis_is_measured_by_itself() -> None:
    array = np.zeros((3, 2, 4))
    array[0, 0, 2] = array[1, 1, 0] = np.nan
    assert measure_filled(array).tolist() == [[1, 3], [2, 1], [0, 0]]
    assert measure_filled(np.zeros((2, 0, 3))).tolist() == [[0, 0], [0, 0]]
    assert measure_filled(np.arange(3)).shape == (3, 0)
