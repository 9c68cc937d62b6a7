"""Large arrays on disk, each a file that is named by a digest of its content.

What several replicas, steps, phases, tasks or traces hold alike lies there once. An
array is read when it is asked for; while somebody holds it, whoever asks for equal
content gets the same object, so that nobody has to compare the two.
"""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import get_ident
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from distbench.trace.content import digest_128, read_bytes
from distbench.trace.dtypes import find_dtype, is_known, name_dtype

ARRAYS = "arrays"
"""The folder with the arrays of the traces beside it."""
LARGE_BYTES = 1 << 18
"""From here on an array is a file of its own, which costs as much as to hash it."""
_DIGEST = re.compile("[0-9a-f]{32}")

Array = npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelved:
    """An array on disk.

    Attributes:
        path: The file: its numbers in a row, as they lie in memory.
        dtype: Their dtype.
        shape: The array's shape.
    """

    path: Path
    dtype: str
    shape: tuple[int, ...]

    def read(self) -> Array:
        """The array, read-only.

        Raises:
            ValueError: The file has another size.
        """
        place = self.path, self.dtype, self.shape
        array = _held.get(place)
        if array is None:
            flat = np.fromfile(self.path, np.uint8).view(find_dtype(self.dtype))
            array = flat.reshape(self.shape)
            array.setflags(write=False)
            _held[place] = array
        return array


_held: WeakValueDictionary[tuple[Path, str, tuple[int, ...]], Array]
_held = WeakValueDictionary()


class Shelf:
    """A folder of arrays; it is made when the first one is put there.

    Args:
        folder: That of the traces.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / ARRAYS

    def put(self, array: Array) -> Array | Shelved:
        """Write an array, if it is large and not there yet; any other one is kept."""
        if array.nbytes < LARGE_BYTES or array.dtype.hasobject:
            return array
        plain = np.ascontiguousarray(array)
        path = self._folder / digest_128(plain).hex()
        if not path.exists():
            # NumPy's own `tofile` does not say that a disk is full.
            _make(path, lambda place: place.write_bytes(read_bytes(plain)))
        return Shelved(path=path, dtype=name_dtype(array.dtype), shape=array.shape)

    def adopt(self, shelved: Shelved) -> Shelved:
        """An array of this or another shelf, in this one."""
        path = self._folder / shelved.path.name
        if not path.exists():
            _make(path, lambda place: _link_or_copy(shelved.path, place))
        return Shelved(path=path, dtype=shelved.dtype, shape=shelved.shape)

    def find(self, digest: str, dtype: str, shape: tuple[int, ...]) -> Shelved:
        """The array with a digest.

        Raises:
            OSError: It is not there.
            ValueError: That is no digest, no dtype of numbers, no shape, or not its
                size.
        """
        is_place = _DIGEST.fullmatch(digest) and min(shape, default=0) >= 0
        if not is_place or not is_known(dtype):
            raise ValueError(f"no place of an array: {digest!r}, {dtype!r}, {shape}")
        path = self._folder / digest
        due, found = math.prod(shape) * find_dtype(dtype).itemsize, path.stat().st_size
        if found != due:
            raise ValueError(f"'{path}' has {found} bytes, and not {due}")
        return Shelved(path=path, dtype=dtype, shape=shape)

    def clear(self) -> None:
        """Remove all arrays."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _make(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file under another name first; several tasks may write the same."""
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{get_ident()}")
    write(temporary)
    temporary.replace(path)


def _link_or_copy(source: Path, place: Path) -> None:
    try:
        os.link(source, place)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, place)
