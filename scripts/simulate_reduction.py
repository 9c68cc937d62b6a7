"""Replay sums over many replicas, and hold them to the bounds that verdicts rest on.

Rings, trees, hosts and one replica that takes up all others add up drawn gradients in
float32, bfloat16 and float16, addition by addition. The comparison's own functions say
what each may be off by. A sum that lacks one replica has to fail: by which test, and up
to how many replicas, is counted as well.

    scripts/simulate_reduction            # docs/measured/simulated_reductions.json
    scripts/simulate_reduction --most 256 # fewer replicas; prints, and keeps nothing
    scripts/simulate_reduction --page     # docs/simulated-reductions.md alone

Exit code 1: a correct sum was called wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from measured import FOLDER, describe_place, write_figures
from replayed_sums import REDUCTIONS
from simulated_page import PAGE, make_lines

from distbench.compare.arrays.addends import Addends
from distbench.compare.arrays.bounds import find_roundoff
from distbench.compare.arrays.measure import Margin, Measure, measure_error
from distbench.compare.pairs.sums import bound_reduction
from distbench.trace.numbers import Array, measure_norm

FIGURES = FOLDER / "simulated_reductions.json"
MOST = 4096
SEEDS = 3
_ELEMENTS = 500
DTYPES: Mapping[str, npt.DTypeLike] = {
    "float32": np.float32,
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
}
Draw = Callable[[np.random.Generator, tuple[int, int]], Array]
ADDENDS: Mapping[str, Draw] = {
    "cancel": lambda rng, shape: rng.normal(size=shape),
    "alike": lambda rng, shape: 1 + rng.normal(size=shape) / 4,
    "equal": lambda rng, shape: np.tile(rng.uniform(0.5, 2, shape[1]), (shape[0], 1)),
}
"""Gradients of an element on all replicas: of mean zero; around one value; the same."""


def simulate(dtype: str, addends: str, replicas: int) -> dict[str, Any]:
    """Make all sums of some draws; what the bounds and the tests said of them."""
    drawn = [_simulate_one(dtype, addends, replicas, seed) for seed in range(SEEDS)]
    return {
        "dtype": dtype,
        "addends": addends,
        "replicas": replicas,
        "sums": SEEDS * len(REDUCTIONS),
        "nu": (replicas - 1) * find_roundoff(dtype),
        "reductions": {
            name: _join([one["reductions"][name] for one in drawn])
            for name in REDUCTIONS
        },
        "lost replica seen by elements": sum(one["by elements"] for one in drawn),
        "lost replica seen": sum(one["seen"] for one in drawn),
    }


def _simulate_one(dtype: str, kind: str, replicas: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng((seed, replicas))
    addends = ADDENDS[kind](rng, (replicas, _ELEMENTS)).astype(DTYPES[dtype])
    exact = addends.astype(np.float64)
    expected = exact.sum(axis=0)
    terms = Addends(totals=tuple(exact))
    margin = bound_reduction(terms, expected, find_roundoff(dtype))
    sums = {
        name: reduce(addends).astype(np.float64) for name, reduce in REDUCTIONS.items()
    }
    lost = expected - exact[replicas // 2]
    alone = Margin(bound=margin.bound)
    return {
        "reductions": {
            name: _describe(observed, expected, margin)
            for name, observed in sums.items()
        },
        "by elements": measure_error(lost, expected, alone).wrong,
        "seen": measure_error(lost, expected, margin).wrong,
    }


def _describe(observed: Array, expected: Array, margin: Margin) -> dict[str, Any]:
    found = measure_error(observed, expected, margin)
    bound = np.broadcast_to(margin.bound, expected.shape)
    error = np.abs(observed - expected)
    quotient = np.divide(error, bound, out=np.zeros_like(error), where=bound > 0)
    return {
        "largest": float(quotient.max()),
        "median": float(np.median(quotient)),
        "tests": _measure_tests(found, observed, expected, margin),
        "off": measure_norm(observed - expected) / measure_norm(expected),
        "wrong": int(found.wrong),
    }


def _measure_tests(
    found: Measure, observed: Array, expected: Array, margin: Margin
) -> float:
    """The larger share of what ratio and sum of the errors may be."""
    total = abs(float(np.sum(observed - expected))) / margin.total
    return max(abs((found.ratio or 1.0) - 1) / margin.ratio, total)


def _join(found: list[dict[str, Any]]) -> dict[str, float]:
    """Over the draws: the median of medians, the largest of all else; what is wrong."""
    return {
        "largest": max(one["largest"] for one in found),
        "median": float(np.median([one["median"] for one in found])),
        "tests": max(one["tests"] for one in found),
        "off": max(one["off"] for one in found),
        "wrong": sum(one["wrong"] for one in found),
    }


def list_rows(most: int) -> Iterator[dict[str, Any]]:
    """All combinations, up to so many replicas."""
    for dtype in DTYPES:
        for addends in ADDENDS:
            replicas = 2
            while replicas <= most:
                yield simulate(dtype, addends, replicas)
                replicas *= 2


def main() -> int:
    """Simulate, and write figures and page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--most", type=int, default=MOST)
    parser.add_argument("--page", action="store_true", help="write the page alone")
    chosen = parser.parse_args()
    if chosen.most < 2:
        parser.error(f"--most: a sum has 2 replicas or more. Received: {chosen.most}.")
    if not chosen.page:
        rows = []
        for row in list_rows(chosen.most):
            rows.append(row)
            wrong = sum(one["wrong"] for one in row["reductions"].values())
            place = f"{row['dtype']} {row['addends']} {row['replicas']}"
            print(f"{place}: {wrong} of {row['sums']} wrong", flush=True)
        document = {"place": describe_place(), "rows": rows}
        if chosen.most < MOST:
            print("\n".join(make_lines(document)))
        else:
            write_figures(FIGURES, document)
        wrong = any(o["wrong"] for row in rows for o in row["reductions"].values())
        if wrong or chosen.most < MOST:
            return int(wrong)
    document = json.loads(FIGURES.read_text(encoding="utf-8"))
    PAGE.write_text("\n".join(make_lines(document)) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
