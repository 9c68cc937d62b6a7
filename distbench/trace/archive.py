"""Arrays by their names in one file, whatever TensorFlow holds in them.

NumPy would write text as pickled objects, which nobody may load, and lose which dtype
the numbers have that ml_dtypes adds to its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from distbench.trace.dtypes import find_dtype, has_bytes, name_dtype

_TEXT = "text"


def write_arrays(arrays: Mapping[str, npt.ArrayLike], path: Path) -> None:
    """Write numbers of every dtype, and text: arrays of `bytes`, or of `str` as UTF-8.

    Args:
        arrays: By name, which has no colon.
        path: The `.npz` file.
    """
    members: dict[str, Any] = {}
    for name, value in arrays.items():
        array = np.asarray(value)
        if array.dtype.hasobject:
            parts = [_encode(element) for element in array.ravel()]
            lengths = np.array([len(part) for part in parts], np.int64)
            members[f"{name}:{_TEXT}"] = np.frombuffer(b"".join(parts), np.uint8)
            members[f"{name}:"] = lengths.reshape(array.shape)
        elif has_bytes(array.dtype):
            members[name] = array
        else:
            plain = np.array(array, order="C").view(f"u{array.dtype.itemsize}")
            members[f"{name}:{name_dtype(array.dtype)}"] = plain
    np.savez(path, **members)


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """What `write_arrays` wrote, in its order; text as arrays of `bytes`."""
    found: dict[str, npt.NDArray[Any]] = {}
    with np.load(path, allow_pickle=False) as archive:
        for member in archive.files:
            name, colon, kind = member.partition(":")
            if kind == _TEXT:
                found[name] = _split(archive[member], archive[f"{name}:"])
            elif kind:
                found[name] = archive[member].view(find_dtype(kind))
            elif not colon:
                found[name] = archive[member]
    return found


def _encode(element: Any) -> bytes:
    return element if isinstance(element, bytes) else str(element).encode()


def _split(content: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Texts of these lengths, one after the other, as an array of their shape."""
    joined, ends = content.tobytes(), np.cumsum(lengths.ravel())
    texts = np.empty(lengths.size, object)
    for place, (end, length) in enumerate(zip(ends, lengths.ravel(), strict=True)):
        texts[place] = joined[end - length : end]
    return texts.reshape(lengths.shape)
