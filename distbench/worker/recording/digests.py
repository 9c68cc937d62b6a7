"""Digests in the place of what a step computed: to tell whether bits are the same.

They are made of what the taps hold, where it lies, once the step is over: of a step
that is not recorded nobody makes any.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from distbench.trace import Recorded, list_arrays
from distbench.trace.content import digest_64
from distbench.worker.state.components import read_component

_Array = npt.NDArray[np.generic]
_Place = tuple[int, int]


def digest_component(component: Any) -> _Array:
    """The digest of a plain variable's value: uint8 [8]."""
    return np.frombuffer(digest_64(read_component(component)), np.uint8)


def digest_values(values: Recorded) -> None:
    """Put digests in the place of all values but losses.

    Of an array uint8 [8], of sparse rows [16]: their indices', and their numbers'.

    Args:
        values: What one step left.
    """
    # What nothing changes from one phase to the next lies in one place of the memory.
    # The arrays are held until all are read, so that no other one takes it.
    held = {key: value for key, value in values.items() if key.phase != "loss"}
    made: dict[_Place, bytes] = {}
    for key, value in held.items():
        found = b"".join(_digest_once(array, made) for array in list_arrays(value))
        values[key] = np.frombuffer(found, np.uint8)


def _digest_once(array: _Array, made: dict[_Place, bytes]) -> bytes:
    place = array.__array_interface__["data"][0], array.nbytes
    if place not in made:
        made[place] = digest_64(array)
    return made[place]
