"""The floating-point formats in which the exact tier proves that nothing rounds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A binary floating-point format: significand bits and smallest normal 2**e."""

    significand_bits: int
    min_exponent: int


FORMATS = {
    "float64": Format(significand_bits=53, min_exponent=-1022),
    "float32": Format(significand_bits=24, min_exponent=-126),
    "float16": Format(significand_bits=11, min_exponent=-14),
    "bfloat16": Format(significand_bits=8, min_exponent=-126),
}
