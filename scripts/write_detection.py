"""Write docs/detection.md from the figures in docs/measured.

Nothing is run and nothing is counted by hand: a section is there if its file is. The
files come from `distbench selftest --json`, `distbench selftest --random N --json`,
`scripts/gpus`, `scripts/sensitivity` and `scripts/soak`. The first two are long; what
the page needs of them is kept by

    python scripts/write_detection.py --selftest FILE [FILE ...] --random FILE

A selftest may be done in parts, each on other clusters (`-c`), side by side; what a
later file has again takes the place of the earlier, and what is run no more is left
out. Where parts ran on other commits than this one, `--commits` names them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from faults_page import list_random, list_selftest
from gpus_page import list_gpus
from measured import FOLDER, ROOT, describe_place, write_figures, write_paragraph
from sensitivity_page import list_sensitivity
from soak_page import list_soak

from distbench.faults import FAULTS
from distbench.selftest.matrix import COLUMNS, score_to_json
from distbench.selftest.score import Cell, Passed, Score
from distbench.unusual import UNUSUAL
from distbench.verdict import Status

PAGE = ROOT / "docs" / "detection.md"
SECTIONS: Mapping[str, Callable[[Mapping[str, Any]], list[str]]] = {
    "selftest": list_selftest,
    "random": list_random,
    "gpus": list_gpus,
    "sensitivity": list_sensitivity,
    "soak": list_soak,
}
_LEFT_OUT = ("explanation", "seconds")
_FINE = ("pass", "skipped")


def make_page(documents: Mapping[str, Mapping[str, Any]]) -> str:
    """The whole page.

    Args:
        documents: The figures, by the name of the section that shows them.
    """
    lines = [
        "<!-- Written by scripts/write_detection.py from docs/measured. -->",
        "",
        "# What is detected",
        "",
        *write_paragraph(
            "Every number on this page was measured and comes from a file in "
            "`docs/measured`; each section says what wrote it."
        ),
    ]
    for name, make in SECTIONS.items():
        if name in documents:
            lines += make(documents[name])
    return "\n".join(lines).rstrip() + "\n"


def leave_out_unplanned(document: Mapping[str, Any]) -> dict[str, Any]:
    """A selftest's document without what none would run now: a name, or its cluster."""
    kept = dict(document)
    for name, kind, planned in (
        ("faults", "fault", FAULTS),
        ("unusual", "program", UNUSUAL),
    ):
        places = {(one.name, cluster) for one in planned for cluster in one.clusters}
        kept[name] = [c for c in document[name] if (c[kind], c["cluster"]) in places]
    return kept


def join_selftests(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The document of all cells of several; what ran again counts as it ran last."""
    faults, unusual = (
        {
            (cell[kind], cell["cluster"]): {
                **cell,
                "found": tuple(cell["found"]),
                "status": Status(cell["status"]),
            }
            for document in documents
            for cell in document[name]
        }.values()
        for name, kind in (("faults", "fault"), ("unusual", "program"))
    )
    score = Score(
        faults=tuple(Cell(**cell) for cell in faults),
        unusual=tuple(Passed(**cell) for cell in unusual),
    )
    joined: dict[str, Any] = json.loads(score_to_json(score))
    return joined


def shorten_selftest(document: Mapping[str, Any]) -> dict[str, Any]:
    """A selftest's document without what the page does not show."""
    kept = {key: value for key, value in document.items() if key != "random"}
    for name in ("faults", "unusual"):
        kept[name] = [_drop(cell) for cell in document[name]]
    return {"place": describe_place(), **kept}


def shorten_random(document: Mapping[str, Any]) -> dict[str, Any]:
    """Counts of what was drawn at random, and only the wrong ones word for word."""
    drawn = document["random"]
    run = [cell for cell in drawn["faults"] if cell["status"] != "skipped"]
    return {
        "schema": document["schema"],
        "place": describe_place(),
        "targets": document["targets"],
        "from_seed": drawn["from_seed"],
        "count": drawn["count"],
        "run": len(run),
        "right": {name: sum(cell[name] for cell in run) for name in COLUMNS},
        "clean": sum(cell["status"] != "skipped" for cell in drawn["clean"]),
        "wrong": [
            _drop(cell) for cell in run if not all(cell[name] for name in COLUMNS)
        ],
        "alarms": [
            _drop(cell) for cell in drawn["clean"] if cell["status"] not in _FINE
        ],
    }


def _drop(cell: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in cell.items() if key not in _LEFT_OUT}


def main(arguments: Sequence[str] | None = None) -> None:
    """Keep what is new, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--selftest", type=Path, metavar="FILE", nargs="+", default=[])
    parser.add_argument("--commits", metavar="COMMIT", nargs="+", default=[])
    parser.add_argument("--random", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    if options.selftest:
        parts = [json.loads(file.read_text("utf-8")) for file in options.selftest]
        planned = list(map(leave_out_unplanned, parts))
        kept = shorten_selftest(join_selftests(planned))
        if options.commits:
            kept["place"] = {**kept["place"], "distbench": ", ".join(options.commits)}
        write_figures(FOLDER / "selftest.json", kept)
    if options.random is not None:
        drawn = json.loads(options.random.read_text("utf-8"))
        write_figures(FOLDER / "random.json", shorten_random(drawn))
    documents = {
        name: json.loads(path.read_text("utf-8"))
        for name in SECTIONS
        if (path := FOLDER / f"{name}.json").exists()
    }
    PAGE.write_text(make_page(documents), encoding="utf-8")


if __name__ == "__main__":
    main()
