"""The section of docs/detection.md on false alarms; see `write_detection`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from measured import (
    Document,
    describe_measured,
    name_phase,
    tell_minutes,
    write_paragraph,
)
from tally import limit_rate

_LISTED = 10
"""Runs of a kind that are shown word for word."""


def list_soak(document: Document) -> list[str]:
    """No false alarm."""
    runs, total = document["runs"], document["comparisons"]
    statuses = document["statuses"]
    words = ", ".join(f"{count:,} {name}" for name, count in statuses.items())
    return [
        "## Alarms of correct programs",
        "",
        *write_paragraph(
            f"`scripts/soak --seed {document['seed']}` ({tell_minutes(document)}) ran "
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
            f"| {row['tier']} | {name_phase(row['phase'])} | {row['against']} "
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
