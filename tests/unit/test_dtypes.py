"""Dtypes of numbers: which there are, and how many digits they have."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from distbench.trace.dtypes import (
    find_digits,
    find_dtype,
    has_bytes,
    is_floating,
    is_known,
    name_dtype,
)


@pytest.mark.parametrize(
    ("name", "digits"),
    [
        ("float64", 53),
        ("float32", 24),
        ("float16", 11),
        ("bfloat16", 8),
        ("float8_e4m3fn", 4),
        ("float8_e4m3b11fnuz", 4),
        ("float8_e5m2", 3),
        ("float4_e2m1fn", 2),
        ("int4", None),
        ("int64", None),
        ("bool", None),
        ("complex64", None),
        ("qint8", None),
        ("digest", None),
    ],
)
def test_a_dtype_rounds_to_its_significand(name: str, digits: int | None) -> None:
    assert find_digits(name) == digits
    if is_known(name):
        assert is_floating(find_dtype(name)) == (digits is not None)


@pytest.mark.parametrize("name", ["float8_e5m2", "bfloat16", "int4", "uint2"])
def test_of_what_numpy_does_not_know_it_hands_out_no_bytes(name: str) -> None:
    with pytest.raises(ValueError, match="cannot include dtype"):
        memoryview(np.zeros(2, name))
    assert not has_bytes(np.dtype(name))
    assert has_bytes(np.dtype("float32"))


@pytest.mark.parametrize(
    "name", ["object", "str", "S3", "V4", "f4,f4", "datetime64", "finfo", "__doc__", ""]
)
def test_what_has_no_numbers_is_unknown(name: str) -> None:
    assert not is_known(name)


def test_a_table_of_other_columns_is_no_quantized_number() -> None:
    table = np.dtype([("key", np.int64), ("value", np.float32)])
    assert name_dtype(table) == table.name
    assert not is_floating(table)


def test_a_number_of_an_added_dtype_has_its_name() -> None:
    assert name_dtype(np.dtype(ml_dtypes.float8_e4m3fn)) == "float8_e4m3fn"
