"""Digests of what arrays hold: by them equal bits are known without comparing any.

Made with XXH3, which reads faster than anything is written. It is no cryptographic
hash, and nobody gains here from two arrays that are taken for one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import xxhash

_Array = npt.NDArray[np.generic]


def digest_128(array: _Array) -> bytes:
    """128 bits of an array's bytes, whatever its dtype and shape: to know it by."""
    return xxhash.xxh3_128_digest(read_bytes(array))


def digest_64(array: _Array) -> bytes:
    """64 bits of them, in half the time: to hold against those of one other array."""
    return xxhash.xxh3_64_digest(read_bytes(array))


def read_bytes(array: _Array) -> memoryview:
    """An array's bytes in C order, copied only where they do not lie so."""
    # NumPy alone knows the bytes of dtypes such as bfloat16.
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
