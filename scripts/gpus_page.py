"""The section of docs/detection.md on GPUs; see `write_detection`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from measured import Document, count_commits, describe_measured, write_paragraph

Row = Mapping[str, Any]
_KINDS = {"fault": "faults", "program": "correct programs"}


def list_gpus(document: Document) -> list[str]:
    """Faults and correct programs on real GPUs."""
    rows = document["rows"]
    ran = [row for row in rows if row["status"] != "error"]
    commits = count_commits({"distbench": row["commit"]} for row in rows)
    # Each row has its own; the one of the last run says nothing of the others.
    place = {k: v for k, v in document.get("place", {}).items() if k != "distbench"}
    passed = [row for row in rows if row["status"] == "pass"]
    warned = Counter(code for row in passed for code in {*row["warned"]})
    text = ", ".join(f"`{code}` in {count}" for code, count in warned.most_common())
    return [
        "## On GPUs",
        "",
        *write_paragraph(
            f"`scripts/gpus` ran {len(rows)} of the same faults and programs, in an "
            "order that a seed drew, with a replica on each GPU, or several that share "
            f"one ({commits})."
        ),
        *describe_measured({**document, "place": place}),
        "| | cluster | right |",
        "|---|---|---|",
        *_count_right(ran),
        "",
        *write_paragraph(
            f"Runs that pass with a warning: {text or 'none'}; see [updates on "
            "GPUs](tolerances.md#updates-on-gpus)."
        ),
        *_list_rows("What is not right:", [r for r in ran if not r["right"]]),
        *_list_rows(
            "What does not run on one GPU either:",
            [r for r in rows if r["status"] == "error"],
        ),
    ]


def _count_right(rows: Sequence[Row]) -> Iterator[str]:
    """How many of each kind are right on each cluster."""
    for kind, name in _KINDS.items():
        for cluster in sorted({row["cluster"] for row in rows}):
            found = [
                r["right"] for r in rows if (r["kind"], r["cluster"]) == (kind, cluster)
            ]
            if found:
                yield f"| {name} | `{cluster}` | {sum(found)} of {len(found)} |"


def _list_rows(title: str, rows: Sequence[Row]) -> Iterator[str]:
    if not rows:
        return
    yield from (title, "")
    for row in rows:
        why = " ".join(row["found"][0].split()) if row["found"] else row["status"]
        yield f"- {row['name']} on {row['cluster']}: {why[:200]}"
    yield ""
