"""docs/detection.md, as `scripts/write_detection` makes it of figures."""

from __future__ import annotations

import json
from typing import Any

import pytest
from imported_scripts import share_scripts
from tallied import make_comparison

from distbench.faults import FAULTS
from distbench.selftest.matrix import COLUMNS, score_to_json
from distbench.selftest.score import Cell, Score
from distbench.unusual import Unusual
from distbench.verdict import Run, Status, Verdict

NAMES = (
    "measured",
    "planting",
    "thresholds",
    "tally",
    "sensitivity_optimizers",
    "sensitivity_places",
    "sensitivity",
    "soak_draws",
    "soak_counts",
    "faults_page",
    "gpus_page",
    "gpus",
    "sensitivity_page",
    "soak_page",
    "write_detection",
)


scripts = share_scripts(*NAMES)


def make_cell(**changes: Any) -> Cell:
    right = dict.fromkeys(COLUMNS, True)
    return Cell(
        **{
            "fault": FAULTS[0].name,
            "cluster": "mwms:2",
            "status": Status.FAIL,
            "found": ("bounded: wrong-pairing, slot",),
            **right,
            **changes,
        }
    )


def make_document(*cells: Cell) -> Any:
    return json.loads(score_to_json(Score(faults=cells, unusual=())))


def test_the_page_tells_what_was_missed(scripts: Any) -> None:
    script, fault = scripts["write_detection"], FAULTS[0]
    document = script.shorten_selftest(make_document(make_cell(code=False)))
    assert "explanation" not in document["faults"][0]
    page = script.make_page({"selftest": document})
    assert f"| {fault.name}: {fault.summary} | `{fault.code}` |" in page
    assert "| code | 0 of 1 | 0.0% | 95% |" in page
    assert f"- {fault.name} on mwms:2: bounded: wrong-pairing" in page
    assert "## Faults drawn at random" not in page


def test_parts_of_a_selftest_are_joined(scripts: Any) -> None:
    right, wrong = make_cell(), make_cell(cluster="mwms:4", code=False)
    parts = [make_document(right), make_document(wrong)]
    joined = scripts["write_detection"].join_selftests(parts)
    assert joined == make_document(right, wrong)
    assert joined["shares"]["code"] == 0.5


def test_what_ran_again_counts_as_it_ran_last(scripts: Any) -> None:
    parts = [make_document(make_cell(code=False)), make_document(make_cell())]
    joined = scripts["write_detection"].join_selftests(parts)
    assert joined == make_document(make_cell())


def test_what_is_run_no_more_is_left_out(scripts: Any) -> None:
    planned = make_cell(cluster=FAULTS[0].clusters[0])
    gone = make_cell(fault="renamed"), make_cell(cluster="mwms:7")
    document = make_document(planned, *gone)
    kept = scripts["write_detection"].leave_out_unplanned(document)
    assert kept["faults"] == make_document(planned)["faults"]


def test_the_page_counts_what_was_drawn(scripts: Any) -> None:
    script = scripts["write_detection"]
    cells = [make_cell(fault="fault_3"), make_cell(fault="fault_4", phase=False)]
    clean = {"program": "clean_3", "cluster": "mwms:2", "seconds": 1.0}
    drawn = {
        "from_seed": 3,
        "count": 2,
        "faults": make_document(*cells)["faults"],
        "clean": [
            {**clean, "status": "pass", "found": []},
            {**clean, "status": "fail", "found": ["bounded: unexplained"]},
        ],
    }
    document = script.shorten_random({**make_document(), "random": drawn})
    page = script.make_page({"random": document})
    assert "`distbench selftest --random 2 --from-seed 3`" in page
    assert "| phase | 1 of 2 | 50.0% | 98% |" in page
    assert "- fault_4 on mwms:2: bounded: wrong-pairing, slot" in page
    assert "fault_3" not in page
    assert "do not pass: 1 of 2 runs" in page
    assert "- clean_3 on mwms:2: bounded: unexplained" in page


def make_gpu_row(name: str, **changes: Any) -> dict[str, Any]:
    row = {"name": name, "cluster": "mirrored:2", "kind": "program", "status": "pass"}
    rest = {"right": True, "warned": [], "found": [], "seconds": 9.0, "commit": "abc"}
    return {**row, **rest, **changes}


def test_the_page_tells_what_gpus_showed(scripts: Any) -> None:
    drift = ["nondeterministic-update"] * 2
    rows = [
        make_gpu_row("calm"),
        make_gpu_row("drifting", warned=drift, commit="def"),
        make_gpu_row("alarmed", status="fail", right=False, found=["bounded: raises"]),
        make_gpu_row("unrun", status="error", right=False, found=["no kernel"]),
        make_gpu_row("caught", kind="fault", status="fail", warned=drift),
    ]
    place = {"distbench": "def", "gpu": "H200"}
    document = {"place": place, "rows": rows}
    page = scripts["write_detection"].make_page({"gpus": document})
    assert "Measured with gpu H200." in page
    assert "4 by distbench abc, 1 by distbench def" in " ".join(page.split())
    assert "| correct programs | `mirrored:2` | 2 of 3 |" in page
    assert "| faults | `mirrored:2` | 1 of 1 |" in page
    assert "`nondeterministic-update` in 1;" in page
    wrong, unrun = page.split("What does not run on one GPU either:")
    assert "- alarmed on mirrored:2: bounded: raises" in wrong
    assert "- unrun on mirrored:2: no kernel" in unrun


def test_what_was_not_right_on_gpus_runs_first(scripts: Any) -> None:
    gpus = scripts["gpus"]
    everything = gpus.plan([], seed=1)
    first, second = everything[:2]
    rows = [
        make_gpu_row(first.sample.name, cluster=first.cluster),
        make_gpu_row(second.sample.name, cluster=second.cluster, right=False),
    ]
    again = gpus.plan(rows, seed=1)
    assert (again[0], again[-1]) == (second, first)
    assert len(again) == len(everything)
    assert gpus.plan([], seed=2) != everything


@pytest.mark.parametrize(
    ("status", "right"), [(Status.PASS, True), (Status.FAIL, False)]
)
def test_a_correct_program_is_right_on_gpus_if_it_passes(
    scripts: Any, status: Status, right: bool
) -> None:
    item = next(i for i in scripts["gpus"].plan([], 1) if isinstance(i.sample, Unusual))
    run = Run(
        scenario="s", cluster="mirrored:2@gpu", path="p", tier="bounded", status=status
    )
    verdict = Verdict(target=item.sample.target, runs=(run,), environment={})
    row = scripts["gpus"].make_row(item, verdict)
    assert (row["kind"], row["right"], row["status"]) == ("program", right, str(status))


def make_sensitivity() -> dict[str, Any]:
    row = {
        "workload": "linear",
        "optimizer": "sgd",
        "replicas": 2,
        "steps": 3,
        "step": 1,
        "phase": "variable",
        "variable": "kernel",
    }
    found = {
        "seen": 4e-8,
        "unseen": 3.9e-8,
        "target": True,
        "allclose": [2e-6, 3e-5, None],
    }
    bounded = [
        {**row, **found, "kind": "factor"},
        {**row, **found, "kind": "factor", "steps": 51, "step": 50, "seen": 5e-8},
        {**row, **found, "kind": "factor", "phase": "loss", "target": False},
    ]
    return {
        "place": {"numpy": "2.4"},
        "seconds": 600,
        "target": 1e-6,
        "tolerances": [
            {"tolerance": 1e-6, "source": "a.py"},
            {"tolerance": 4e-5, "source": "b.py"},
            {"tolerance": 1e-3, "source": "c.py"},
        ],
        "proofs": [
            {"steps": 51, "sum": 51, "update": 50, "whole_run_agrees": True},
        ],
        "bounded": bounded,
        "exact": [{**row, "elements": 6, "seen": 5, "factor_seen": True}],
        "confirmed": [
            {
                "replicas": 2,
                "phase": "slot",
                "kind": "element",
                "seen": 4e-8,
                "twice": "fail: unexplained, step 1, slot",
                "half": "pass",
            }
        ],
    }


def test_the_page_shows_thresholds(scripts: Any) -> None:
    page = scripts["write_detection"].make_page({"sensitivity": make_sensitivity()})
    assert "Measured with numpy 2.4." in page
    assert "| variable | factor | 4.0e-8 | 2.0e-6 | 3.0e-5 | never |" in page
    assert "| phase | error | N = 2, step 50 of 51 |" in page
    assert "| loss | 0 of 1 places |" in page
    assert "| variable | 5 of 6 |" in page
    assert "| 2 | slot | one element | 4.0e-8 | fail: unexplained" in page
    assert "51 of 51 steps" in page.replace("\n", " ")


def test_the_page_shows_alarms_and_bounds(scripts: Any) -> None:
    kept = scripts["soak_counts"]
    counts = kept.Counts(drawn=2)
    draw = scripts["soak_draws"].draw_run(1, 1)
    counts.add_status(draw, "bounded", "pass")
    counts.add_status(draw, "free", "fail")
    for quotient, bound in ((0.25, 1.0), (0.0, 0.0)):
        tally = counts.relations.setdefault(
            ("bounded", "loss", f"bound {bound}"), scripts["tally"].Tally()
        )
        for target in (tally, counts.total):
            target.add(make_comparison(quotient, bound))
    counts.alarms.append(
        {
            "number": 1,
            "tier": "free",
            "status": "fail",
            "command": draw.command,
            "text": "wrong",
        }
    )
    counts.note_memory()
    document = kept.make_document(counts, seed=1, seconds=120.0)
    json.dumps(document, allow_nan=False)
    page = scripts["write_detection"].make_page({"soak": document})
    assert "| false alarms | 1 of 2 runs |" in page
    assert "| bounded | 1 | 0 | 9.50e-01 |" in page
    assert f"- free, fail: wrong `{draw.command}`" in page
    assert "| bounded | loss | bound 1.0 | 1 | 0% | 100% | 0.25 |" in page
    assert "equal in all bits in 1 of 1 comparisons" in page.replace("\n", " ")


def test_the_figures_of_thresholds_make_a_section(scripts: Any) -> None:
    made = make_sensitivity()
    tables = {name: made[name] for name in ("proofs", "bounded", "exact", "confirmed")}
    document = scripts["sensitivity"].make_document(tables, 120)
    assert list(document)[-1] == "confirmed"
    page = scripts["write_detection"].make_page({"sensitivity": document})
    assert "`scripts/sensitivity` (2 minutes)" in page
