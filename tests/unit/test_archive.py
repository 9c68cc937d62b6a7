"""Arrays of every dtype, and text, in one file that needs no pickles."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from distbench.trace.archive import read_arrays, write_arrays

TEXT = np.array([[b"a", b"", b"nul\0\0"], [b"\xff", b"long" * 9, b"a"]], object)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6).reshape(2, 3),
        np.array(True),
        np.zeros((0, 2), np.complex64),
        np.array([1.5, -2.0], ml_dtypes.bfloat16),
        np.array(0.25, ml_dtypes.float8_e4m3fn),
        np.array([b"fixed", b"width"]),
        TEXT,
        TEXT[:0],
        np.array(b"one", object),
    ],
    ids=lambda array: f"{array.dtype}-{array.shape}",
)
def test_what_is_written_is_read(tmp_path: Path, array: np.ndarray) -> None:
    path = tmp_path / "arrays.npz"
    write_arrays({"0.0": array, "by 1.seen": np.ones(1)}, path)
    found = read_arrays(path)
    assert list(found) == ["0.0", "by 1.seen"]
    assert (found["0.0"].dtype, found["0.0"].shape) == (array.dtype, array.shape)
    assert found["0.0"].tolist() == array.tolist()


def test_text_of_python_comes_back_as_bytes(tmp_path: Path) -> None:
    write_arrays({"names": np.array(["gr\u00fcn"], object)}, tmp_path / "names.npz")
    (name,) = read_arrays(tmp_path / "names.npz")["names"]
    assert name.decode() == "gr\u00fcn"
