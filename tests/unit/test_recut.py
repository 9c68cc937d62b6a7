"""State of shards, put together and cut otherwise."""

from __future__ import annotations

import numpy as np
import pytest

from distbench.trace.shards import recut_shards

ROWS = np.arange(14.0).reshape(7, 2)


def _cut(*sizes: int, suffix: str = "") -> dict[str, np.ndarray]:
    parts = np.split(ROWS, np.cumsum(sizes)[:-1])
    if len(sizes) == 1:
        return {f"rows{suffix}": ROWS}
    return {f"rows/part_{i}{suffix}": part for i, part in enumerate(parts)}


@pytest.mark.parametrize("suffix", ["", "/m"], ids=["variable", "slot"])
@pytest.mark.parametrize("before", [(7,), (4, 3), (3, 2, 2)], ids=str)
@pytest.mark.parametrize("after", [(7,), (4, 3), (3, 2, 2)], ids=str)
def test_rows_stay_where_they_are(
    suffix: str, before: tuple[int, ...], after: tuple[int, ...]
) -> None:
    wanted = _cut(*after, suffix=suffix)
    shapes = {path: array.shape for path, array in wanted.items()}
    found = recut_shards(_cut(*before, suffix=suffix), shapes)
    assert found.keys() == wanted.keys()
    for path, array in wanted.items():
        np.testing.assert_array_equal(found[path], array)


def test_the_eleventh_shard_comes_after_the_third() -> None:
    saved = {f"rows/part_{i}": np.array([float(i)]) for i in range(12)}
    assert recut_shards(saved, {"rows": (12,)})["rows"].tolist() == list(range(12))


def test_what_does_not_fit_or_was_not_saved_is_left_out() -> None:
    saved = {"count": np.array(3), **_cut(4, 3)}
    wanted = {"count": (), "rows": (8, 2), "rows/m": (7, 2)}
    assert recut_shards(saved, wanted).keys() == {"count"}


def test_what_was_never_cut_is_left_out_if_it_has_another_shape() -> None:
    assert not recut_shards({"count": np.zeros(3)}, {"count": (1,)})
