"""The sections of docs/detection.md on seeded faults; see `write_detection`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from measured import Document, describe_measured, write_paragraph

from distbench.faults import FAULTS, Fault
from distbench.selftest.matrix import COLUMNS
from distbench.unusual import UNUSUAL

_MEANING = {
    "detected": "the run fails (or passes with a warning, where one is due)",
    "code": "the first finding has the expected code",
    "phase": "it lies in the expected phase",
    "variable": "it names just the variables that the mistake concerns",
    "replicas": "it names just the replicas, where the mistake concerns some",
}


def list_selftest(document: Document) -> list[str]:
    """Faults that users made, and correct programs that look like one."""
    cells, passed = document["faults"], document["unusual"]
    run = [cell for cell in cells if cell["status"] != "skipped"]
    right = {name: sum(cell[name] for cell in run) for name in COLUMNS}
    return [
        "## Faults that users make",
        "",
        *write_paragraph(
            f"`distbench selftest` runs {_count(cells, 'fault')} seeded faults and "
            f"{_count(passed, 'program')} correct but unusual programs on real "
            "clusters and compares each diagnosis with what is expected. The faults "
            "are small mistakes in user code, each modelled on a real bug "
            "(`distbench/faults`); the correct programs do what is often taken for one "
            "(`distbench/unusual`)."
        ),
        *describe_measured(document),
        *_make_shares(right, len(run), document["targets"]),
        "",
        f"Correct programs that do not pass: {document['false_alarms']} of "
        f"{len(passed)} runs.",
        "",
        *_make_matrix(cells),
        "",
        *_list_misses(cells),
        "### Correct but unusual programs",
        "",
        *_make_passed(passed),
        "",
    ]


def list_random(document: Document) -> list[str]:
    """Faults that a seed drew."""
    last = document["from_seed"] + document["count"] - 1
    return [
        "## Faults drawn at random",
        "",
        *write_paragraph(
            f"`distbench selftest --random {document['count']} --from-seed "
            f"{document['from_seed']}` draws a program and a mistake from each of the "
            f"seeds {document['from_seed']} to {last}, and runs the program with the "
            "mistake and without."
        ),
        *describe_measured(document),
        *_make_shares(document["right"], document["run"], document["targets"]),
        "",
        f"Programs without the mistake that do not pass: {len(document['alarms'])} of "
        f"{document['clean']} runs.",
        "",
        *_list_misses(document["wrong"]),
        *_list_alarms(document["alarms"]),
    ]


def _count(cells: Sequence[Document], name: str) -> int:
    return len({cell[name] for cell in cells})


def _make_shares(
    right: Mapping[str, int], run: int, targets: Mapping[str, float]
) -> Iterator[str]:
    yield "| | right | share | target | |"
    yield "|---|---|---|---|---|"
    for name in COLUMNS:
        target = targets.get(name)
        wanted = "" if target is None else f"{target:.0%}"
        share = right[name] / run if run else 1.0
        yield (
            f"| {name} | {right[name]} of {run} | {share:.1%} | {wanted} "
            f"| {_MEANING[name]} |"
        )


def _make_matrix(cells: Sequence[Document]) -> Iterator[str]:
    clusters = list(dict.fromkeys(cell["cluster"] for cell in cells))
    yield f"| fault | code | like | {' | '.join(clusters)} |"
    yield "|---|---|---|" + "---|" * len(clusters)
    found = {(cell["fault"], cell["cluster"]): cell for cell in cells}
    for fault in FAULTS:
        row = [_mark(found.get((fault.name, cluster))) for cluster in clusters]
        if any(row):
            yield (
                f"| {_name_fault(fault)} | `{fault.code}` | {fault.like} "
                f"| {' | '.join(row)} |"
            )


def _name_fault(fault: Fault) -> str:
    return f"{fault.name}: {fault.summary}"


def _mark(cell: Document | None) -> str:
    if cell is None:
        return ""
    if cell["status"] == "skipped":
        return "–"
    wrong = [name for name in COLUMNS if not cell[name]]
    if "detected" in wrong:
        return "**missed**"
    return "ok" if not wrong else f"**{', '.join(wrong)}**"


def _list_misses(cells: Sequence[Document]) -> Iterator[str]:
    wrong = [cell for cell in cells if _mark(cell) not in ("ok", "–")]
    if not wrong:
        return
    yield "What is missed or not named as expected:"
    yield ""
    for cell in wrong:
        found = "; ".join(cell["found"]) or "nothing"
        yield f"- {cell['fault']} on {cell['cluster']}: {found}"
    yield ""


def _list_alarms(alarms: Sequence[Document]) -> Iterator[str]:
    if not alarms:
        return
    yield "They are:"
    yield ""
    for cell in alarms:
        yield f"- {cell['program']} on {cell['cluster']}: {'; '.join(cell['found'])}"
    yield ""


def _make_passed(passed: Sequence[Document]) -> Iterator[str]:
    clusters = list(dict.fromkeys(one["cluster"] for one in passed))
    yield f"| program | {' | '.join(clusters)} |"
    yield "|---|" + "---|" * len(clusters)
    found = {(one["program"], one["cluster"]): one["status"] for one in passed}
    for program in UNUSUAL:
        row = [found.get((program.name, cluster), "") for cluster in clusters]
        if any(row):
            yield f"| {program.name}: {program.summary} | {' | '.join(row)} |"
