"""Comparisons to be counted."""

from __future__ import annotations

from distbench.compare.comparison import Comparison


def make_comparison(quotient: float, bound: float = 1.0) -> Comparison:
    return Comparison(
        step=0,
        call=0,
        phase="loss",
        variable="",
        replica=0,
        relation="reference",
        against="one device, the same shard",
        error=quotient * bound,
        bound=bound,
        error_over_bound=quotient,
        ratio=1.0,
        wrong=quotient > 1,
        effective=True,
        hidden=False,
        change=1.0,
        resolution=1.0,
    )
