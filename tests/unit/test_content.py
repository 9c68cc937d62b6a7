"""Digests of arrays: equal for equal bytes, and for no others."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from distbench.trace.content import digest_64, digest_128

NUMBERS = np.arange(24, dtype=np.float32).reshape(4, 6)
Digest = Callable[[np.ndarray], bytes]


@pytest.fixture(params=[digest_64, digest_128])
def digest(request: pytest.FixtureRequest) -> Digest:
    found: Digest = request.param
    return found


def test_as_many_bits_as_are_named() -> None:
    assert (len(digest_64(NUMBERS)), len(digest_128(NUMBERS))) == (8, 16)


@pytest.mark.parametrize(
    "same",
    [
        NUMBERS.copy(),
        NUMBERS.reshape(-1),
        np.asfortranarray(NUMBERS),
        np.repeat(NUMBERS, 2, axis=1)[:, ::2],
        NUMBERS.view(np.int32),
    ],
    ids=["copy", "shape", "order", "strides", "dtype"],
)
def test_equal_bytes_have_equal_digests(digest: Digest, same: np.ndarray) -> None:
    assert digest(same) == digest(NUMBERS)


@pytest.mark.parametrize(
    "other",
    [
        NUMBERS[[1, 0, 2, 3]],
        NUMBERS.T,
        -NUMBERS,
        np.nextafter(NUMBERS, np.float32(np.inf)),
        NUMBERS[:-1],
    ],
    ids=["rows swapped", "transposed", "signs", "last bits", "shorter"],
)
def test_other_bytes_have_other_digests(digest: Digest, other: np.ndarray) -> None:
    assert digest(other) != digest(NUMBERS)


@pytest.mark.parametrize("value", [0.0, -0.0], ids=["zero", "negative zero"])
@pytest.mark.parametrize("dtype", [np.float64, ml_dtypes.bfloat16, np.bool_])
@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (3,)])
def test_any_numbers_of_any_shape_have_one(
    digest: Digest, value: float, dtype: type, shape: tuple[int, ...]
) -> None:
    array = np.full(shape, value, dtype)
    assert digest(array) == digest(array.copy())
    has_sign = array.size > 0 and dtype is not np.bool_
    assert (digest(array) != digest(np.full(shape, 0.0, dtype))) == (
        has_sign and bool(np.signbit(value))
    )
