"""The page that `battery.py` writes about what it saw."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from battery_cases import NAMESPACES, LeftOut, Stock
from battery_known import KNOWN, Known, find_known, split_case
from measured import describe_measured

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
_CLUSTERS = ("mirrored:2", "mwms:2", "central:2", "ps:2+1")


def make_page(
    cases: Sequence[Stock], left_out: Sequence[LeftOut], document: Mapping[str, Any]
) -> str:
    """The page in Markdown."""
    rows: Sequence[Row] = document["rows"]
    lines = [_HEAD, *describe_measured(document)]
    lines += [*_write_summary(rows), *_write_known(rows), *_write_left_out(left_out)]
    for family in NAMESPACES:
        chosen = [row for row in rows if split_case(row)[0] == family]
        lines += _write_family(family, [c for c in cases if c.family == family], chosen)
    return "\n".join(lines)


def _write_summary(rows: Sequence[Row]) -> Iterator[str]:
    seconds = sum(row["seconds"] for row in rows)
    total = Counter(row["status"] for row in rows)
    words = ", ".join(f"{count} {status}" for status, count in total.most_common())
    yield f"{len(rows)} runs in {seconds / 60:.0f} minutes: {words}."
    yield ""
    statuses = [status for status, _ in total.most_common()]
    yield from _start_table("family", "cluster", "path", *statuses)
    groups: dict[tuple[str, str, str], Counter[str]] = {}
    for row in rows:
        key = (split_case(row)[0], row["cluster"], row["path"])
        groups.setdefault(key, Counter())[row["status"]] += 1
    order = itertools.product(NAMESPACES, _CLUSTERS, ("default", "user"))
    for key in (key for key in order if key in groups):
        yield _join(*key, *(groups[key][status] or "" for status in statuses))
    yield ""


def _write_known(rows: Sequence[Row]) -> Iterator[str]:
    counts = Counter(_number(row) for row in rows if row["status"] != "pass")
    yield "## What is no pass"
    yield ""
    for number, known in enumerate(KNOWN, start=1):
        if count := counts[str(number)]:
            yield f"{number}. **{known.title}** ({count}). {known.says}{_link(known)}"
    yield ""
    if count := counts["?"]:
        yield f"{count} runs are not explained yet."
        yield ""


def _link(known: Known) -> str:
    return f" [Shown alone](upstream/{known.entry})." if known.entry else ""


def _write_left_out(left_out: Sequence[LeftOut]) -> Iterator[str]:
    yield "## Left out"
    yield ""
    yield from _start_table("class", "why")
    for item in left_out:
        yield _join(f"`{NAMESPACES[item.family]}.{item.name}`", item.reason)
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
        for cluster in _CLUSTERS
        if any(key[1:3] == (path, cluster) for key in cells)
    ]
    titles = (c if path == "default" else f"{c} {path}" for path, c in columns)
    yield from _start_table("optimizer", "option", *titles)
    previous = ""
    for case in cases:
        found = [
            [cells.get((case.id, *column, w)) for w in ("linear", "embedding")]
            for column in columns
        ]
        if any(row for pair in found for row in pair):
            name = case.name if case.name != previous else ""
            previous = case.name
            yield _join(name, case.option, *(_describe_pair(pair) for pair in found))
    yield ""


def _describe_pair(pair: Sequence[Row | None]) -> str:
    words = [_describe(row) for row in pair if row]
    return words[0] if len(set(words)) == 1 else " / ".join(words)


def _describe(row: Row) -> str:
    if row["status"] == "pass":
        return "pass*" if "repeated rows" in row["message"] else "pass"
    code = row["findings"][0]["code"] if row["findings"] else row["status"]
    return f"{code} {_number(row)}"


def _number(row: Row) -> str:
    known = find_known(row)
    return "?" if known is None else str(KNOWN.index(known) + 1)


def _start_table(*titles: str) -> Iterator[str]:
    yield _join(*titles)
    yield _join(*("---" for _ in titles))


def _join(*cells: object) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"
