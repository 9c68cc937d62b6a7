"""The page that `battery.py` writes about what it saw."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from battery_cases import CLUSTERS, NAMESPACES, LeftOut, Stock
from battery_known import KNOWN, split_case
from known_rows import join_cells, number_row, start_table, write_known
from measured import count_commits, describe_measured, write_paragraph

Row = dict[str, Any]
"""One check on one workload, as it is kept."""

_HEAD = """\
<!-- Written by scripts/battery.py from docs/measured/stock.json. -->

# The stock optimizers

Every public optimizer of the four families, as `distbench check` judges it: with its
defaults and with each option that its constructor takes, on dense gradients (`linear`,
tiers exact and bounded) and on sparse ones (`embedding`, bounded). The classes are
found by looking at what is installed; of TensorFlow 1's, a learning rate and a momentum
without a default are given.

<!-- not run: it takes hours -->
```console
$ scripts/battery --minutes 30        # goes on where it stopped
```

A cell is `dense / sparse`. A number behind a verdict is that of its explanation below;
`?` has none yet, and an empty cell was not run. `*` notes a pass under a rule that
depends on whether repeated rows of a sparse gradient were added up first. On the path
`user` the program sums, and the optimizer is told not to.
"""


def make_page(
    cases: Sequence[Stock], left_out: Sequence[LeftOut], document: Mapping[str, Any]
) -> str:
    """The page in Markdown."""
    rows: Sequence[Row] = document["rows"]
    lines = [_HEAD, *describe_measured(document)]
    lines += _write_summary(rows)
    lines += write_known(rows, KNOWN, "runs")
    lines += _write_left_out(left_out)
    for family in NAMESPACES:
        chosen = [row for row in rows if split_case(row)[0] == family]
        lines += _write_family(family, [c for c in cases if c.family == family], chosen)
    return "\n".join(lines)


def _write_summary(rows: Sequence[Row]) -> Iterator[str]:
    seconds = sum(row["seconds"] for row in rows)
    total = Counter(row["status"] for row in rows)
    words = ", ".join(f"{count} {status}" for status, count in total.most_common())
    by = count_commits(rows)
    yield from write_paragraph(
        f"{len(rows)} runs ({by}) in {seconds / 60:.0f} minutes: {words}."
    )
    statuses = [status for status, _ in total.most_common()]
    yield from start_table("family", "cluster", "path", *statuses)
    groups: dict[tuple[str, str, str], Counter[str]] = {}
    for row in rows:
        key = (split_case(row)[0], row["cluster"], row["path"])
        groups.setdefault(key, Counter())[row["status"]] += 1
    order = itertools.product(NAMESPACES, CLUSTERS, ("default", "user"))
    for key in (key for key in order if key in groups):
        yield join_cells(*key, *(groups[key][status] or "" for status in statuses))
    yield ""


def _write_left_out(left_out: Sequence[LeftOut]) -> Iterator[str]:
    yield "## Left out"
    yield ""
    yield from start_table("class", "why")
    for item in left_out:
        yield join_cells(f"`{NAMESPACES[item.family]}.{item.name}`", item.reason)
    yield ""


def _write_family(
    family: str, cases: Sequence[Stock], rows: Sequence[Row]
) -> Iterator[str]:
    yield f"## `{NAMESPACES[family]}`"
    yield ""
    cells = {(r["case"], r["path"], r["cluster"], r["workload"]): r for r in rows}
    columns = [
        (path, cluster)
        for path in ("default", "user")
        for cluster in CLUSTERS
        if any(key[1:3] == (path, cluster) for key in cells)
    ]
    titles = (c if path == "default" else f"{c} {path}" for path, c in columns)
    yield from start_table("optimizer", "option", *titles)
    previous = ""
    for case in cases:
        found = [
            [cells.get((case.id, *column, w)) for w in ("linear", "embedding")]
            for column in columns
        ]
        if any(row for pair in found for row in pair):
            name = case.name if case.name != previous else ""
            previous = case.name
            yield join_cells(name, case.option, *map(_describe_pair, found))
    yield ""


def _describe_pair(pair: Sequence[Row | None]) -> str:
    words = [_describe(row) for row in pair if row]
    return words[0] if len(set(words)) == 1 else " / ".join(words)


def _describe(row: Row) -> str:
    if row["status"] == "pass":
        return "pass*" if "repeated rows" in row["message"] else "pass"
    code = row["findings"][0]["code"] if row["findings"] else row["status"]
    return f"{code} {number_row(row, KNOWN)}"
