"""Many arrays in few: what the archive of a trace holds.

A member of an archive has a header, and to parse that takes longer than to read the
ten numbers of a bias. So all arrays of one dtype lie in one member, one after the
other, and equal contents, such as a state that all replicas hold, lie there once.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from distbench.errors import BadInputError
from distbench.trace.content import digest_128, read_bytes
from distbench.trace.dtypes import DType, find_dtype, has_bytes, name_dtype

Place = dict[str, Any]
"""Where an array lies: `dtype`, `at` (of its first element) and `shape`, as JSON."""
_Array = npt.NDArray[np.generic]


class Packer:
    """Collects arrays, and writes them as one archive.

    They are neither copied nor joined before they are written, so they must not change.
    """

    def __init__(self) -> None:
        self._parts: dict[str, list[_Array]] = {}
        self._sizes: dict[str, int] = {}
        self._known: dict[tuple[str, bytes], int] = {}

    def add(self, array: _Array) -> Place:
        """Take an array; returns its place.

        Raises:
            BadInputError: It does not hold numbers.
        """
        if array.dtype.hasobject:
            raise BadInputError(
                "A trace keeps numbers. Received: an array of Python objects, as the "
                "strings of a variable are. Leave that variable out of variables()."
            )
        name = name_dtype(array.dtype)
        plain = np.ascontiguousarray(array)
        content = name, digest_128(plain)
        if content not in self._known:
            self._known[content] = self._sizes.get(name, 0)
            self._parts.setdefault(name, []).append(plain)
            self._sizes[name] = self._known[content] + plain.size
        return {"dtype": name, "at": self._known[content], "shape": list(array.shape)}

    def write(self, path: Path) -> None:
        """Write an `npz` file with a flat array for each dtype."""
        with zipfile.ZipFile(path, "w") as archive:
            for name, parts in self._parts.items():
                header = {
                    "descr": np.lib.format.dtype_to_descr(_choose_dtype(parts[0])),
                    "fortran_order": False,
                    "shape": (self._sizes[name],),
                }
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array_header_1_0(member, header)
                    for part in parts:
                        member.write(read_bytes(part))


class Unpacker:
    """Reads what a `Packer` wrote. Executes nothing: no array is unpickled.

    Args:
        path: The archive.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            self._flat = {name: _restore(archive[name], name) for name in archive.files}
        self._taken: dict[tuple[str, int, tuple[int, ...]], _Array] = {}

    def take(self, place: Mapping[str, Any]) -> _Array:
        """The array at a place, the same object each time: a view of what was read."""
        key = place["dtype"], place["at"], tuple(place["shape"])
        if key not in self._taken:
            name, begin, shape = key
            flat = self._flat[name][begin : begin + math.prod(shape)]
            self._taken[key] = flat.reshape(shape)
        return self._taken[key]


def _choose_dtype(array: _Array) -> DType:
    """In which NumPy's files have the numbers: where they cannot, as integers."""
    own = array.dtype
    return own if has_bytes(own) else np.dtype(f"u{own.itemsize}")


def _restore(flat: _Array, name: str) -> _Array:
    """The numbers whose bits may have travelled as integers."""
    dtype = find_dtype(name)
    return flat if has_bytes(dtype) else flat.view(dtype)
