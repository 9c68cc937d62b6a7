"""The sections of docs/detection.md on thresholds and alarms; see `write_detection`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from measured import describe_measured, write_paragraph
from tally import limit_rate

Document = Mapping[str, Any]
_PHASES = (
    "loss",
    "local_gradient",
    "reduced_gradient",
    "applied_gradient",
    "slot",
    "variable",
)
_LISTED = 10
"""Runs of a kind that are shown word for word."""
_KINDS = {"factor": "factor", "element": "one element"}


def list_sensitivity(document: Document) -> list[str]:
    """The smallest fault that is reported."""
    tolerances = document["tolerances"]
    return [
        "## The smallest fault that is reported",
        "",
        *write_paragraph(
            f"`scripts/sensitivity` ({_minutes(document)}) plants an error into what a "
            "correct run on `mwms:N` recorded, lets it run through the rest of the "
            "step, and bisects for the smallest one that is reported. `factor` is the "
            "ε of a whole value times 1 + ε: of one replica's loss or local gradient, "
            "else of a value that is the same on all replicas. `one element` is added "
            "to the element whose absolute value is the median, relative to the "
            "largest element of the tensor."
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
            f"| {_name(place[0])} | {_KINDS[place[1]]} | {' | '.join(cells + others)} |"
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
        yield f"| {_name(place[0])} | {_KINDS[place[1]]} | {' | '.join(cells)} |"


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
    yield "| phase | reported in |"
    yield "|---|---|"
    for phase in _list_phases(rows):
        here = [row for row in rows if row["phase"] == phase]
        seen = sum(row["target"] for row in here)
        yield f"| {_name(phase)} | {seen} of {len(here)} places |"
    yield ""


def _list_exact(rows: Sequence[Document]) -> Iterator[str]:
    if not rows:
        return
    yield "### Exact tier"
    yield ""
    yield "One element is moved by one unit in the last place, each in turn:"
    yield ""
    yield "| phase | reported |"
    yield "|---|---|"
    for phase in _list_phases(rows):
        here = [row for row in rows if row["phase"] == phase]
        seen = sum(row["seen"] for row in here)
        yield f"| {_name(phase)} | {seen} of {sum(r['elements'] for r in here)} |"
    yield ""


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
            f"| {row['replicas']} | {_name(row['phase'])} | {_KINDS[row['kind']]} "
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


def list_soak(document: Document) -> list[str]:
    """No false alarm."""
    runs, total = document["runs"], document["comparisons"]
    statuses = document["statuses"]
    words = ", ".join(f"{count:,} {name}" for name, count in statuses.items())
    return [
        "## Alarms of correct programs",
        "",
        *write_paragraph(
            f"`scripts/soak --seed {document['seed']}` ({_minutes(document)}) ran "
            "correct programs that it drew: Keras' legacy optimizers, those of "
            "`scenarios/optimizers` and the unusual programs, over seeds, workloads, "
            "aggregation paths, dtypes and clusters of 2 to 16 replicas (`mirrored`, "
            "`mwms`, `central`), in every tier that they can have. A run is one tier "
            "of one scenario on one cluster. A comparison is one value of one replica "
            "at one step, or one sum over the replicas, held against one expected "
            "value."
        ),
        *describe_measured(document),
        "| | |",
        "|---|---|",
        f"| scenarios drawn | {document['scenarios']:,} |",
        *(f"| not run: {why} | {n:,} |" for why, n in document["unrun"].items()),
        f"| runs | {runs:,}: {words} |",
        f"| false alarms | {document['false_alarms']} of {runs:,} runs |",
        f"| upper 95 % limit of the rate per run | {document['run_rate_limit']:.2e} |",
        f"| comparisons | {total['compared']:,} |",
        f"| of these equal in all bits | {_share(total, 'equal')} |",
        f"| must be equal: their bound is 0 | {_share(total, 'bitwise')} |",
        f"| effective: would fail with an example or a replica lost "
        f"| {_share(total, 'effective')} |",
        f"| outside of their bound | {total['wrong']:,} |",
        "| upper 95 % limit of the rate per comparison "
        f"| {document['comparison_rate_limit']:.2e} |",
        f"| differ on purpose (scaled up, then averaged), not counted above "
        f"| {document['deviating']:,} |",
        f"| largest error ÷ bound | {total['largest']:.3g} |",
        f"| memory of the process | {document['memory_mib']['first']} MiB at first, "
        f"{document['memory_mib']['last']} MiB at last, "
        f"{document['memory_mib']['largest']} MiB at most |",
        "",
        *write_paragraph(
            "The limits are Clopper and Pearson's. Comparisons of one run share data "
            "and are not independent, so the second limit is that of a count and not "
            "of a probability for one value."
        ),
        *_list_tiers(document["groups"]),
        *_list_alarms(document),
        *_list_groups(document["groups"]),
        *_list_relations(document),
    ]


def _list_tiers(rows: Sequence[Document]) -> Iterator[str]:
    yield "| tier | runs | false alarms | upper 95 % limit of the rate |"
    yield "|---|---|---|---|"
    for row in rows:
        if row["by"] == "tier":
            runs = sum(value for value in row.values() if isinstance(value, int))
            alarms = row.get("fail", 0)
            limit = limit_rate(alarms, runs)
            yield f"| {row['name']} | {runs:,} | {alarms:,} | {limit:.2e} |"
    yield ""


def _list_alarms(document: Document) -> Iterator[str]:
    for title, rows in (
        ("Alarms", document["alarms"]),
        ("Outside of their bound, without a finding", document["exceeded"]),
        ("Neither pass nor fail", document["unclear"]),
    ):
        judged = [row for row in rows if row["tier"]]
        if not judged:
            continue
        yield f"### {title}"
        yield ""
        if len(judged) >= _LISTED:
            yield f"The first {_LISTED}:"
            yield ""
        for row in judged[:_LISTED]:
            text = " ".join(row["text"].split())
            yield f"- {row['tier']}, {row['status']}: {text} `{row['command']}`"
        yield ""


def _list_groups(rows: Sequence[Document]) -> Iterator[str]:
    yield "### Runs by what was drawn"
    yield ""
    statuses = [
        name
        for name in ("pass", "warning", "undecidable", "vacuous", "error", "fail")
        if any(name in row for row in rows)
    ]
    yield f"| | | {' | '.join(statuses)} |"
    yield "|---|---|" + "---|" * len(statuses)
    for row in sorted(rows, key=lambda row: (row["by"], _sort_name(row["name"]))):
        counts = [f"{row.get(name, 0):,}" for name in statuses]
        yield f"| {row['by']} | {row['name']} | {' | '.join(counts)} |"
    yield ""


def _sort_name(name: str) -> tuple[int, str]:
    return (int(name), "") if name.isdigit() else (0, name)


def _list_relations(document: Document) -> Iterator[str]:
    rows = document["relations"]
    bounded = [row for row in rows if row["compared"] > row["bitwise"]]
    exact = [row for row in rows if row["compared"] == row["bitwise"]]
    yield "### How much of the bounds is used"
    yield ""
    yield "Error ÷ bound of the relations that have a bound:"
    yield ""
    yield (
        "| tier | value | against | comparisons | equal in all bits | effective "
        "| median | 90 % | 99 % | largest |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for row in bounded:
        flag = " **loose**" if row["loose"] else ""
        yield (
            f"| {row['tier']} | {_name(row['phase'])} | {row['against']} "
            f"| {row['compared']:,} | {row['equal'] / row['compared']:.0%} "
            f"| {row['effective'] / row['compared']:.0%} | {row['median']:.2g} "
            f"| {row['p90']:.2g} | {row['p99']:.2g} | {row['largest']:.2g}{flag} |"
        )
    yield ""
    compared = sum(row["compared"] for row in exact)
    equal = sum(row["equal"] for row in exact)
    yield from write_paragraph(
        f"The {len(exact)} relations whose bound is 0 (the exact tier, updates that "
        "follow, replicas against each other, the start) are equal in all bits in "
        f"{equal:,} of {compared:,} comparisons."
    )
    loose = [row for row in bounded if row["loose"]]
    yield (
        "A bound of which never more than a thousandth is used would be too loose: "
        + (f"{len(loose)} are." if loose else "none is.")
    )
    yield ""
    yield "By dtype, bounds of 0 left out:"
    yield ""
    yield "| dtype | comparisons | equal in all bits | median | 90 % | 99 % | largest |"
    yield "|---|---|---|---|---|---|---|"
    for row in document["dtypes"]:
        yield (
            f"| {row['dtype']} | {row['compared']:,} "
            f"| {row['equal'] / row['compared']:.0%} | {row['median']:.2g} "
            f"| {row['p90']:.2g} | {row['p99']:.2g} | {row['largest']:.2g} |"
        )
    yield ""


def _share(total: Document, name: str) -> str:
    return f"{total[name]:,} ({total[name] / max(1, total['compared']):.1%})"


def _minutes(document: Document) -> str:
    return f"{document['seconds'] / 60:.0f} minutes"


def _name(phase: str) -> str:
    return phase.replace("_", " ")


def _show(size: float | None) -> str:
    return "never" if size is None else f"{size:.1e}".replace("e-0", "e-")


def _find_largest(sizes: Sequence[float | None]) -> float | None:
    return None if None in sizes else max(size for size in sizes if size is not None)
