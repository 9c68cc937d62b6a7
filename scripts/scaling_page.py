"""docs/scaling.md from the figures of scripts/scaling.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from measured import describe_measured, write_paragraph

_BEYOND = (256, 1024)
"""Numbers of workers for which costs are told by the fits."""
_COLUMNS = {
    "private_mib": "private memory, MiB",
    "threads": "threads",
    "files": "descriptors",
    "listening": "ports",
    "connections": "connections",
    "cpu_s": "processor time of a check, s",
}

_MOST = 1 << 17
Row = Mapping[str, Any]
Array = npt.NDArray[np.float64]
TERMS: Mapping[str, Callable[[Array], Array]] = {
    "": np.ones_like,
    " / N": lambda workers: 1 / workers,
    " log2 N": np.log2,
    " N": lambda workers: workers,
}
_GROWTHS = (("",), ("", " N"), ("", " log2 N"), (" / N", "", " N"))


def make_page(document: Mapping[str, Any]) -> str:
    """The page: what was measured, what the fits say beyond, what runs out first."""
    rows = [
        {**row, "cpu_s": row["check_cpu_s"] / row["workers"]}
        for row in document["rows"]
    ]
    growths = {name: _fit_rows(rows, name) for name in _COLUMNS}
    lines = [
        "<!-- Written by scripts/scaling.py from docs/measured. -->",
        "",
        "# More workers",
        "",
        *write_paragraph(
            "What a scenario costs on more and more workers of "
            "`MultiWorkerMirroredStrategy`, all on one machine here. Memory, threads, "
            "descriptors, ports and connections are those of a task after three steps "
            "of one variable, as a mean over the tasks. The check is that of an "
            "optimizer on the linear workload, bounded tier, three steps."
        ),
        *describe_measured(document),
        *_list_measured(rows),
        "## Beyond",
        "",
        *write_paragraph(
            "How what a task costs grows with the number of workers, N, is fitted to "
            "what was measured: of several sums of terms the one that foretells each "
            "row best from the others. By these fits:"
        ),
        *_list_beyond(growths),
        "## What runs out first",
        "",
        *write_paragraph(
            "On one machine like this, by these fits. Workers on machines of their own "
            "share none of it but the bench's descriptors."
        ),
        *_list_limits(document["limits"], rows, growths),
    ]
    return "\n".join(lines).rstrip() + "\n"


@dataclass(frozen=True, slots=True)
class Growth:
    """What one task costs among N workers: a sum of terms in N.

    Attributes:
        terms: Names of the terms, keys of `TERMS`.
        weights: The factor of each.
    """

    terms: tuple[str, ...]
    weights: tuple[float, ...]

    def __call__(self, workers: Array) -> Array:
        """Cost of one task for each number of workers."""
        parts = zip(self.terms, self.weights, strict=True)
        return np.asarray(sum(weight * TERMS[term](workers) for term, weight in parts))

    def __str__(self) -> str:
        """The formula."""
        parts = zip(self.terms, self.weights, strict=True)
        return " + ".join(f"{weight:.2g}{term}" for term, weight in parts if weight)

    def find_most(self, limit: float) -> int:
        """The largest number of workers that take together no more than a limit."""
        workers = np.arange(1.0, _MOST + 1)
        return int(np.searchsorted(workers * self(workers), limit, side="right"))


def fit_growth(workers: Array, values: Array) -> Growth:
    """The growth that foretells each value best from the others.

    Least squares of the relative error, no term negative.

    Args:
        workers: Numbers of workers, [n].
        values: What a task costs among so many, [n].
    """

    def measure_miss(names: tuple[str, ...]) -> float:
        misses = []
        for left_out in range(len(workers)):
            kept = np.arange(len(workers)) != left_out
            growth = _fit(names, workers[kept], values[kept])
            misses.append(growth(workers)[left_out] / values[left_out] - 1)
        return float(np.sum(np.square(misses)))

    return _fit(min(_GROWTHS, key=measure_miss), workers, values)


def _fit(names: tuple[str, ...], workers: Array, values: Array) -> Growth:
    kept = list(names)
    while True:
        matrix = np.stack([TERMS[name](workers) / values for name in kept], axis=1)
        weights, *_ = np.linalg.lstsq(matrix, np.ones(len(values)), rcond=None)
        worst = int(np.argmin(weights))
        if weights[worst] >= 0 or len(kept) == 1:
            return Growth(tuple(kept), tuple(weights.tolist()))
        del kept[worst]


def _list_measured(rows: Sequence[Row]) -> Iterator[str]:
    yield (
        "| workers | "
        + " | ".join(f"{title} each" for title in _COLUMNS.values())
        + " | run, s | check, s | bench, MiB | its descriptors |"
    )
    yield "|" + "---:|" * (len(_COLUMNS) + 5)
    for row in rows:
        cells = [_show(row[name]) for name in _COLUMNS]
        more = [row["run_s"], row["check_s"], row["bench_mib"], row["bench_files"]]
        yield f"| {row['workers']} | {' | '.join([*cells, *map(_show, more)])} |"
    yield ""


def _list_beyond(growths: Mapping[str, Growth]) -> Iterator[str]:
    yield "| each worker | growth | " + " | ".join(f"N = {n:,}" for n in _BEYOND) + " |"
    yield "|---|---|" + "---:|" * len(_BEYOND)
    for name, title in _COLUMNS.items():
        values = map(_show, growths[name](np.array(_BEYOND, np.float64)))
        yield f"| {title} | {growths[name]} | {' | '.join(values)} |"
    yield ""


def _list_limits(
    limits: Mapping[str, float], rows: Sequence[Row], growths: Mapping[str, Growth]
) -> Iterator[str]:
    bench = _fit_rows(
        [{**r, "each": r["bench_files"] / r["workers"]} for r in rows], "each"
    )
    kinds = {
        "memory, MiB": (limits["memory_mib"], growths["private_mib"]),
        "threads of the system": (limits["threads"], growths["threads"]),
        "numbers of processes and threads": (limits["processes"], growths["threads"]),
        "descriptors of the bench": (limits["files"], bench),
        "ephemeral ports, one for each end of a connection": (
            limits["ports"],
            growths["connections"],
        ),
    }
    found = sorted(
        (growth.find_most(limit), name, limit)
        for name, (limit, growth) in kinds.items()
    )
    yield "| | there are | enough for workers |"
    yield "|---|---:|---:|"
    for most, name, limit in found:
        yield f"| {name} | {limit:,.0f} | {most:,} |"
    yield ""


def _fit_rows(rows: Sequence[Row], name: str) -> Growth:
    workers, values = (
        np.array([row[key] for row in rows], np.float64) for key in ("workers", name)
    )
    return fit_growth(workers, values)


def _show(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
