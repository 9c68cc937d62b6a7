"""Large arrays of a trace: on disk once, read when they are asked for, and let go."""

from __future__ import annotations

import errno
import gc
import json
import weakref
from pathlib import Path

import numpy as np
import pytest

from distbench.errors import BadInputError
from distbench.trace import SparseRows, Trace, TraceKey, Values, merge_traces
from distbench.trace.files import list_files as files_of_trace
from distbench.trace.files import read_trace, write_trace
from distbench.trace.shelf import ARRAYS, LARGE_BYTES, Shelf, Shelved

LARGE = np.arange(LARGE_BYTES // 8, dtype=np.float64)
SMALL = np.arange(3.0)


def key(**changes) -> TraceKey:
    return TraceKey(**{"step": 0, "phase": "variable", "variable": "w", **changes})


def make_trace(values) -> Trace:
    return Trace(name="t", replicas=2, shards=(1, 1), variables=(), values=values)


def list_files(folder: Path) -> list[Path]:
    return sorted((folder / ARRAYS).glob("*"))


def test_equal_large_arrays_of_all_tasks_and_steps_are_one_file(tmp_path: Path) -> None:
    for task in range(2):
        values: Values[TraceKey] = Values(shelf=Shelf(tmp_path))
        for step in range(3):
            values[key(replica=task, step=step)] = LARGE.copy()
        values[key(replica=task, step=9)] = LARGE + 1 + task
        assert all(isinstance(held, Shelved) for held in values.held.values())
        write_trace(make_trace(values), tmp_path, f"task-{task}")
    assert len(list_files(tmp_path)) == 3
    assert {path.stat().st_size for path in list_files(tmp_path)} == {LARGE.nbytes}
    parts = [read_trace(tmp_path, f"task-{task}") for task in range(2)]
    whole = merge_traces("all", parts)
    for place, value in whole.values.items():
        expected = LARGE + 1 + place.replica if place.step == 9 else LARGE
        np.testing.assert_array_equal(value, expected, strict=True)


def test_only_what_is_held_stays_in_memory(tmp_path: Path) -> None:
    trace = make_trace({key(replica=r): LARGE.copy() for r in range(2)})
    write_trace(trace, tmp_path, "t")
    back = read_trace(tmp_path, "t")
    held = back.values[key(replica=0)]
    # Whoever asks for the same content meanwhile gets the same object.
    assert back.values[key(replica=1)] is held
    seen = weakref.ref(held)
    del held
    gc.collect()
    assert seen() is None


def test_small_arrays_and_sparse_rows_stay_in_the_archive(tmp_path: Path) -> None:
    rows = SparseRows(indices=np.array([1]), values=np.ones((1, 2)), shape=(4, 2))
    values: Values[TraceKey] = Values(shelf=Shelf(tmp_path))
    values.update({key(): SMALL, key(variable="e"): rows, key(variable="l"): LARGE})
    write_trace(make_trace(values), tmp_path, "t")
    assert len(list_files(tmp_path)) == 1
    back = read_trace(tmp_path, "t")
    assert isinstance(back.values[key(variable="e")], SparseRows)
    np.testing.assert_array_equal(back.values[key()], SMALL)


def test_large_slices_of_sparse_rows_come_back(tmp_path: Path) -> None:
    rows = SparseRows(
        indices=np.arange(len(LARGE)), values=LARGE[:, None], shape=(len(LARGE), 1)
    )
    write_trace(make_trace({key(): rows}), tmp_path, "t")
    back = read_trace(tmp_path, "t").values[key()]
    assert isinstance(back, SparseRows)
    np.testing.assert_array_equal(back.values, rows.values)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int64"])
def test_a_large_array_comes_back_bit_by_bit(tmp_path: Path, dtype: str) -> None:
    array = np.resize(np.array([-0.0, 1.5, 3]), (2, LARGE_BYTES)).astype(dtype)
    write_trace(make_trace({key(): array}), tmp_path, "t")
    back = read_trace(tmp_path, "t").values[key()]
    assert isinstance(back, np.ndarray)
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()
    with pytest.raises(ValueError, match="read-only"):
        back[0, 0] = 1


def test_a_trace_is_copied_with_its_arrays(tmp_path: Path) -> None:
    """Of one on disk nothing is read, and what is copied outlives the first one."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    write_trace(make_trace({key(): LARGE}), first, "t")
    write_trace(read_trace(first, "t"), second, "t")
    Shelf(first).clear()
    assert list_files(first) == []
    np.testing.assert_array_equal(read_trace(second, "t").values[key()], LARGE)


def test_the_files_of_a_trace_are_enough_to_read_it(tmp_path: Path) -> None:
    whole, part = tmp_path / "whole", tmp_path / "part"
    for number, stem in enumerate(("wanted", "other")):
        rows = SparseRows(
            indices=np.arange(2), values=LARGE.reshape(2, -1) + number, shape=(9, 9)
        )
        values = {key(): LARGE * number, key(step=1): rows, key(step=2): SMALL}
        whole.mkdir(exist_ok=True)
        write_trace(make_trace(values), whole, stem)
    files = files_of_trace(whole, "wanted")
    assert len(files) == 4
    for file in files:
        place = part / file.relative_to(whole)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file.read_bytes())
    copied, read = read_trace(part, "wanted"), read_trace(whole, "wanted")
    assert copied.values.keys() == read.values.keys()
    for name in (key(), key(step=2)):
        np.testing.assert_array_equal(copied.values[name], read.values[name])
    np.testing.assert_array_equal(
        copied.values[key(step=1)].values, read.values[key(step=1)].values
    )


def test_what_is_put_under_another_key_or_left_out_is_not_read(tmp_path: Path) -> None:
    write_trace(make_trace({key(): LARGE, key(step=1): LARGE}), tmp_path, "t")
    values = Values(read_trace(tmp_path, "t").values)
    Shelf(tmp_path).clear()
    kept = values.keep(lambda place: place.step == 0)
    moved = kept.rename(lambda place: place.at(7))
    assert list(moved) == [key(replica=7)]
    assert values.get(key(step=5)) is None
    with pytest.raises(FileNotFoundError):
        moved[key(replica=7)]


@pytest.mark.parametrize("damage", ["gone", "cut", "elsewhere", "below-zero"])
def test_a_trace_without_its_arrays_is_bad_input(tmp_path: Path, damage: str) -> None:
    write_trace(make_trace({key(): LARGE}), tmp_path, "t")
    (path,) = list_files(tmp_path)
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-8])
    else:
        index = json.loads((tmp_path / "t.json").read_text())
        place = index["index"][0]["values"]
        if damage == "elsewhere":
            path.rename(tmp_path / "other")  # of the right size, and of no trace
            place["digest"] = "../other"
        else:
            place["shape"] = [-1, *(-n for n in place["shape"])]
        (tmp_path / "t.json").write_text(json.dumps(index))
    with pytest.raises(BadInputError, match=r"cannot be read: .*Record the run again"):
        read_trace(tmp_path, "t")


def test_an_array_that_is_not_written_to_its_end_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name says what is in it: nobody would write it again."""

    def fill_disk(path: Path, data: bytes) -> None:
        with path.open("wb") as file:
            file.write(memoryview(data)[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", fill_disk)
        with pytest.raises(OSError, match="No space left"):
            Shelf(tmp_path).put(LARGE)
    held = Shelf(tmp_path).put(LARGE)
    assert isinstance(held, Shelved)
    np.testing.assert_array_equal(held.read(), LARGE)
