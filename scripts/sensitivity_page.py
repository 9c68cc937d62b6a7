"""The section of docs/detection.md on the smallest errors; see `write_detection`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from measured import (
    Document,
    describe_measured,
    name_phase,
    tell_minutes,
    write_paragraph,
)

_PHASES = (
    "loss",
    "local_gradient",
    "reduced_gradient",
    "applied_gradient",
    "slot",
    "variable",
)
_KINDS = {"factor": "factor", "element": "one element"}


def list_sensitivity(document: Document) -> list[str]:
    """The smallest fault that is reported."""
    tolerances = document["tolerances"]
    return [
        "## The smallest fault that is reported",
        "",
        *write_paragraph(
            f"`scripts/sensitivity` ({tell_minutes(document)}) plants an error into "
            "what a correct run on `mwms:N` recorded, lets it run through the rest of "
            "the step, and bisects for the smallest one that is reported. `factor` is "
            "the ε of a whole value times 1 + ε: of one replica's loss or local "
            "gradient, else of a value that is the same on all replicas. `one element` "
            "is added to the element whose absolute value is the median, relative to "
            "the largest element of the tensor."
        ),
        *write_paragraph(
            "The columns `allclose` are what `np.allclose` sees on the same two arrays "
            "with the tolerances of TensorFlow's own tests (the largest over N):"
        ),
        *(f"- {_show(one['tolerance'])}: `{one['source']}`" for one in tolerances),
        "",
        *describe_measured(document),
        *_list_bounded(document),
        *_list_target(document),
        *_list_exact(document["exact"]),
        *_list_confirmed(document["confirmed"]),
        *_list_proofs(document["proofs"]),
    ]


def _list_bounded(document: Document) -> Iterator[str]:
    rows = document["bounded"]
    beside = [_show(one["tolerance"]) for one in document["tolerances"]]
    shortest = min(row["steps"] for row in rows)
    for workload in dict.fromkeys(row["workload"] for row in rows):
        here = [row for row in rows if row["workload"] == workload]
        short = [row for row in here if row["steps"] == shortest]
        yield f"### Bounded tier, float32, workload `{workload}`"
        yield ""
        yield from write_paragraph(
            f"A check of {shortest} steps, error in step {short[0]['step']}. Of the "
            "largest and the smallest tensor, and of SGD with and without momentum, "
            "the one that hides most:"
        )
        yield from _make_thresholds(short, beside)
        yield ""
        yield "The same in a longer run, where the noise of all steps is pooled:"
        yield ""
        yield from _make_long([row for row in here if row["steps"] != shortest])
        yield ""


def _make_thresholds(rows: Sequence[Document], beside: Sequence[str]) -> Iterator[str]:
    sizes = sorted({row["replicas"] for row in rows})
    heads = [*(f"N = {n}" for n in sizes), *(f"allclose {one}" for one in beside)]
    yield f"| phase | error | {' | '.join(heads)} |"
    yield "|---|---|" + "---|" * len(heads)
    for place in _list_kinds(rows):
        found = {
            row["replicas"]: row for row in rows if (row["phase"], row["kind"]) == place
        }
        cells = [_show(found[n]["seen"]) if n in found else "" for n in sizes]
        others = [
            _show(_find_largest([row["allclose"][i] for row in found.values()]))
            for i in range(len(beside))
        ]
        yield (
            f"| {name_phase(place[0])} | {_KINDS[place[1]]} "
            f"| {' | '.join(cells + others)} |"
        )


def _make_long(rows: Sequence[Document]) -> Iterator[str]:
    columns = sorted({(row["replicas"], row["step"], row["steps"]) for row in rows})
    heads = [f"N = {n}, step {step} of {steps}" for n, step, steps in columns]
    yield f"| phase | error | {' | '.join(heads)} |"
    yield "|---|---|" + "---|" * len(heads)
    for place in _list_kinds(rows):
        found = {
            (row["replicas"], row["step"], row["steps"]): row
            for row in rows
            if (row["phase"], row["kind"]) == place
        }
        cells = [_show(found[c]["seen"]) if c in found else "" for c in columns]
        yield f"| {name_phase(place[0])} | {_KINDS[place[1]]} | {' | '.join(cells)} |"


def _list_phases(rows: Sequence[Document]) -> list[str]:
    return sorted({row["phase"] for row in rows}, key=_PHASES.index)


def _list_kinds(rows: Sequence[Document]) -> list[tuple[str, str]]:
    found = {(row["phase"], row["kind"]) for row in rows}
    return sorted(
        found, key=lambda kind: (_PHASES.index(kind[0]), list(_KINDS).index(kind[1]))
    )


def _list_target(document: Document) -> Iterator[str]:
    target = _show(document["target"])
    rows = [row for row in document["bounded"] if row["kind"] == "factor"]
    yield f"A factor of 1 + {target} on one float32 variable, bounded tier:"
    yield ""
    yield from _count_by_phase(
        rows,
        "reported in",
        lambda here: f"{sum(row['target'] for row in here)} of {len(here)} places",
    )


def _count_by_phase(
    rows: Sequence[Document], head: str, count: Callable[[Sequence[Document]], str]
) -> Iterator[str]:
    """A table with a line for each phase, and what is counted in its rows."""
    yield f"| phase | {head} |"
    yield "|---|---|"
    for phase in _list_phases(rows):
        here = [row for row in rows if row["phase"] == phase]
        yield f"| {name_phase(phase)} | {count(here)} |"
    yield ""


def _list_exact(rows: Sequence[Document]) -> Iterator[str]:
    if not rows:
        return
    yield "### Exact tier"
    yield ""
    yield "One element is moved by one unit in the last place, each in turn:"
    yield ""
    yield from _count_by_phase(
        rows,
        "reported",
        lambda here: (
            f"{sum(row['seen'] for row in here)} of "
            f"{sum(row['elements'] for row in here)}"
        ),
    )


def _list_confirmed(rows: Sequence[Document]) -> Iterator[str]:
    if not rows:
        return
    yield "### Confirmed on clusters"
    yield ""
    yield from write_paragraph(
        "An optimizer with the error in its own code, checked on a real cluster at "
        "twice and at half of the threshold (`linear`, momentum, bounded tier):"
    )
    yield "| N | phase | error | threshold | twice | half |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        yield (
            f"| {row['replicas']} | {name_phase(row['phase'])} | {_KINDS[row['kind']]} "
            f"| {_show(row['seen'])} | {row['twice']} | {row['half']} |"
        )
    yield ""


def _list_proofs(rows: Sequence[Document]) -> Iterator[str]:
    yield "### What this rests on"
    yield ""
    steps = sum(row["steps"] for row in rows)
    sums, updates = (sum(row[name] for row in rows) for name in ("sum", "update"))
    whole = [row["whole_run_agrees"] for row in rows]
    known = [one for one in whole if one is not None]
    yield from write_paragraph(
        "What follows from an error is computed in NumPy. On the clean runs that gives "
        f"the bits of the cluster's all-reduce in {sums:,} of {steps:,} steps, and "
        f"those of its update in {updates:,}; a phase that does not repeat is left "
        "out. Each threshold is confirmed by `judge` on both sides with all values of "
        "the planted step; with all steps it gave the same answer in "
        f"{sum(known)} of {len(known)} runs."
    )


def _show(size: float | None) -> str:
    return "never" if size is None else f"{size:.1e}".replace("e-0", "e-")


def _find_largest(sizes: Sequence[float | None]) -> float | None:
    return None if None in sizes else max(size for size in sizes if size is not None)
