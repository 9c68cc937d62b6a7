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
from distbench.trace.content import digest_128

Place = dict[str, Any]
"""Where an array lies: `dtype`, `at` (of its first element) and `shape`, as JSON."""
_Array = npt.NDArray[np.generic]
_WIDENED = "bfloat16"
"""NumPy's files cannot have it: its bits travel as integers, and become a float32."""


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
        name = array.dtype.name
        if array.dtype.hasobject:
            raise BadInputError(
                "A trace keeps numbers. Received: an array of Python objects, as the "
                "strings of a variable are. Leave that variable out of variables()."
            )
        plain = np.ascontiguousarray(array)
        if name == _WIDENED:
            plain = plain.view(np.uint16)
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
                    "descr": np.lib.format.dtype_to_descr(parts[0].dtype),
                    "fortran_order": False,
                    "shape": (self._sizes[name],),
                }
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array_header_1_0(member, header)
                    for part in parts:
                        member.write(part.data)


class Unpacker:
    """Reads what a `Packer` wrote. Executes nothing: no array is unpickled.

    Args:
        path: The archive.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            self._flat: dict[str, _Array] = {n: archive[n] for n in archive.files}
        if _WIDENED in self._flat:
            # A bfloat16 is the upper half of a float32, so widening it is exact.
            bits = self._flat[_WIDENED].astype(np.uint32) << 16
            self._flat[_WIDENED] = bits.view(np.float32)
        self._taken: dict[tuple[str, int, tuple[int, ...]], _Array] = {}

    def take(self, place: Mapping[str, Any]) -> _Array:
        """The array at a place, the same object each time: a view of what was read."""
        key = place["dtype"], place["at"], tuple(place["shape"])
        if key not in self._taken:
            name, begin, shape = key
            flat = self._flat[name][begin : begin + math.prod(shape)]
            self._taken[key] = flat.reshape(shape)
        return self._taken[key]
