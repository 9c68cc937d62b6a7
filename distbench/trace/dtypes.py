"""Dtypes of numbers: NumPy's own, and those that ml_dtypes adds to them.

The latter, such as bfloat16 and float8_e4m3fn, are TensorFlow's as well. NumPy knows
neither of which kind they are nor how to hand out their bytes.
"""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np

DType = np.dtype[np.generic]


@cache
def find_dtype(name: str) -> DType:
    """The dtype with a name that `name_dtype` gives.

    Raises:
        TypeError: None of numbers has it.
    """
    if name in _FIELDS:
        return np.dtype([(name, _FIELDS[name])])
    added = getattr(ml_dtypes, name, None)
    if isinstance(added, type) and issubclass(added, np.generic):
        return np.dtype(added)
    found = np.dtype(name)
    if found.kind not in "biufc":
        raise TypeError(f"no dtype of numbers: {name!r}")
    return found


@cache
def is_known(name: str) -> bool:
    """Whether a dtype of numbers has this name."""
    try:
        find_dtype(name)
    except TypeError:
        return False
    return True


@cache
def name_dtype(dtype: DType) -> str:
    """The name that TensorFlow gives it too."""
    # TensorFlow's quantized numbers are tables of one column, which has their name.
    return next((n for n in dtype.names or () if n in _FIELDS), str(dtype.name))


@cache
def has_bytes(dtype: DType) -> bool:
    """Whether NumPy hands out the bytes of an array, and writes them to its files."""
    return dtype.isbuiltin != _ADDED


def is_floating(dtype: DType) -> bool:
    """Whether it has real numbers that round."""
    return find_digits(name_dtype(dtype)) is not None


@cache
def is_whole(name: str) -> bool:
    """Whether a dtype of this name has whole numbers alone."""
    is_real = is_known(name) and find_dtype(name).kind != "c"
    return is_real and find_digits(name) is None


@cache
def find_digits(name: str) -> int | None:
    """Significand bits of a dtype of real numbers, the hidden one too.

    None for one that does not round, and for what is no dtype.
    """
    try:
        dtype = find_dtype(name)
        found = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    except (TypeError, ValueError):
        return None
    # Of complex numbers it is what their parts have.
    return int(found.nmant) + 1 if found.dtype == dtype else None


_ADDED = 2
"""What NumPy calls a dtype that is not its own."""
_FIELDS = {
    "qint8": np.int8,
    "quint8": np.uint8,
    "qint16": np.int16,
    "quint16": np.uint16,
    "qint32": np.int32,
}
