"""The catalogues, and how a selftest is scored, without running anything."""

from __future__ import annotations

import collections
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from verdict_samples import make_finding, make_run, make_verdict

from distbench.cli import main
from distbench.codes import CODES
from distbench.errors import BadInputError
from distbench.faults import FAULTS
from distbench.faults.fault import Fault
from distbench.options import CheckOptions
from distbench.samples.name import make_name
from distbench.selftest.matrix import mark_cell, score_to_json
from distbench.selftest.run import Item, plan_selftest, run_selftest
from distbench.selftest.score import Cell, Score, score_fault, score_program
from distbench.unusual import UNUSUAL, Unusual
from distbench.verdict import Status, Verdict

# Those that need parameter servers, checkpoints, input pipelines or GPUs.
ELSEWHERE = {
    "collective-mismatch",
    "examples-repeated",
    "nondeterministic-update",
    "state-not-restored",
}

FAULT = Fault(
    name="two-kernels",
    code="wrong-pairing",
    phase="reduced_gradient",
    variables=("a", "b"),
    replicas=(-1,),
    clusters=("mwms:4",),
    like="deepspeedai/DeepSpeed#2343",
    target="package.module:Program",
    summary="Two kernels are swapped.",
)
RIGHT = make_finding(
    code="wrong-pairing",
    phase="reduced_gradient",
    variable="a",
    variables=("a", "b"),
    replicas=(3,),
)


def score(
    *findings: object, status: Status = Status.FAIL, fault: Fault = FAULT
) -> Cell:
    run = make_run(status=status, findings=tuple(findings), cluster="mwms:4")
    return score_fault(fault, "mwms:4", make_verdict(run))


def test_every_code_that_a_replica_can_show_has_two_faults() -> None:
    counted = collections.Counter(fault.code for fault in FAULTS)
    assert {code for code in CODES if counted[code] < 2} == ELSEWHERE
    assert len(FAULTS) >= 60
    assert len(UNUSUAL) >= 25


def test_names_and_targets_are_unique() -> None:
    samples = [*FAULTS, *UNUSUAL]
    # A fault and a correct program may bear the same class name, as they are two.
    for attribute in ("name", "target"):
        values = [getattr(sample, attribute) for sample in samples]
        assert len(set(values)) == len(values), collections.Counter(values)
    assert all(sample.summary.endswith(".") for sample in samples)


def test_a_fault_is_on_no_cluster_that_would_hide_it() -> None:
    for fault in FAULTS:
        assert "one" not in fault.clusters
        assert len(set(fault.clusters)) == len(fault.clusters)


def test_what_is_named_right_is_right() -> None:
    cell = score(RIGHT)
    assert mark_cell(cell) == "ok"
    assert Score(faults=(cell,), unusual=()).ok


@pytest.mark.parametrize(
    ("change", "mark"),
    [
        ({"code": "scale-error"}, "code"),
        ({"phase": "applied_gradient"}, "phase"),
        ({"variables": ("a", "b", "c")}, "variable"),
        ({"variables": ("a",)}, "variable"),
        ({"replicas": (0, 3)}, "replicas"),
    ],
    ids=["code", "phase", "too-many", "too-few", "replicas"],
)
def test_what_is_named_wrongly_is_told(change: dict[str, object], mark: str) -> None:
    cell = score(replace(RIGHT, **change))  # type: ignore[arg-type]
    assert cell.detected
    assert mark_cell(cell) == mark


def test_only_the_first_finding_counts() -> None:
    cell = score(replace(RIGHT, code="scale-error"), RIGHT)
    assert mark_cell(cell) == "code"


@pytest.mark.parametrize("status", [Status.PASS, Status.UNDECIDABLE, Status.ERROR])
def test_what_does_not_fail_is_missed(status: Status) -> None:
    cell = score(status=status)
    assert mark_cell(cell) == "missed"
    assert not Score(faults=(cell,), unusual=()).ok


def test_every_tier_has_to_be_right() -> None:
    runs = [
        make_run(status=Status.FAIL, findings=(finding,), tier=tier)
        for tier, finding in (
            ("exact", RIGHT),
            ("bounded", replace(RIGHT, code="scale-error")),
        )
    ]
    cell = score_fault(FAULT, "mwms:4", make_verdict(*runs))
    assert (cell.detected, cell.code, cell.phase) == (True, False, True)


def test_a_warning_is_found_in_a_run_that_passes() -> None:
    fault = replace(FAULT, code="lower-precision", warning=True)
    finding = replace(RIGHT, code="lower-precision", warning=True)
    assert mark_cell(score(finding, status=Status.PASS, fault=fault)) == "ok"
    assert not score(finding, status=Status.FAIL, fault=fault).detected


def test_a_cluster_that_the_machine_lacks_counts_for_nothing() -> None:
    cell = score(status=Status.SKIPPED)
    assert mark_cell(cell) == "-"
    assert Score(faults=(cell, score(RIGHT)), unusual=()).ok
    assert not Score(faults=(cell,), unusual=()).ok


def test_a_fault_that_is_refused_was_not_found() -> None:
    cell = score(status=Status.REFUSED)
    assert mark_cell(cell) == "missed"
    assert not Score(faults=(cell, score(RIGHT)), unusual=()).ok


@pytest.mark.parametrize(
    ("status", "alarms"),
    [
        (Status.PASS, 0),
        (Status.FAIL, 1),
        (Status.VACUOUS, 1),
        (Status.REFUSED, 1),
        (Status.SKIPPED, 0),
    ],
    ids=str,
)
def test_a_correct_program_must_pass(status: Status, alarms: int) -> None:
    program = Unusual(name="p", clusters=("mwms:2",), target="m:P", summary="Right.")
    passed = score_program(program, "mwms:2", make_verdict(make_run(status=status)))
    result = Score(faults=(score(RIGHT),), unusual=(passed,))
    assert len(result.false_alarms) == alarms
    assert result.ok == (alarms == 0)


def test_the_document_holds_cells_and_shares() -> None:
    wrong = score(replace(RIGHT, phase="slot"))
    document = json.loads(
        score_to_json(Score(faults=(score(RIGHT), wrong), unusual=()))
    )
    assert document["shares"]["detected"] == 1.0
    assert document["shares"]["phase"] == 0.5
    assert document["ok"] is False
    assert document["faults"][1]["fault"] == "two-kernels"


def test_a_plan_takes_names_codes_and_clusters() -> None:
    one = FAULTS[0]
    assert {i.sample.name for i in plan_selftest([one.name])} == {one.name}
    items = plan_selftest(["raises"], ["mirrored:2"])
    assert {item.cluster for item in items} == {"mirrored:2"}
    assert {getattr(item.sample, "code", "") for item in items} == {"raises"}


def test_each_cluster_is_scored_by_its_own_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fault = replace(FAULT, clusters=("mirrored:4", "mwms:4"))

    def check(target: object, options: CheckOptions) -> dict[str, Verdict]:
        wrong = make_run(status=Status.FAIL, findings=(replace(RIGHT, code="raises"),))
        right = make_run(status=Status.FAIL, findings=(RIGHT,))
        verdicts = make_verdict(wrong), make_verdict(right)
        return dict(zip(options.clusters, verdicts, strict=True))

    monkeypatch.setattr("distbench.selftest.run.check_each", check)
    monkeypatch.setattr("distbench.selftest.run.parse_target", str)
    items = [Item(sample=fault, cluster=cluster) for cluster in fault.clusters]
    cells = run_selftest(items).faults
    assert [cell.cluster for cell in cells] == list(fault.clusters)
    assert [cell.detected for cell in cells] == [True, True]
    assert [cell.code for cell in cells] == [False, True]


@pytest.mark.parametrize(
    ("only", "clusters", "words"),
    [
        (["mean-of-own-shart"], [], "mean-of-own-shard"),
        ([], ["mwms:31"], "No fault is meant for mwms:31"),
        (["state-by-name"], ["mwms:4"], r"of state-by-name is.*one of mirrored:2\.$"),
        ([], ["mwms"], "mwms"),
    ],
    ids=["name", "cluster", "cluster-of-name", "spec"],
)
def test_a_plan_refuses_what_it_does_not_know(
    only: list[str], clusters: list[str], words: str
) -> None:
    with pytest.raises(BadInputError, match=words):
        plan_selftest(only, clusters)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"code": "wrong"}, "Finding code"),
        ({"phase": "nowhere"}, "unknown phase"),
        ({"like": "somewhere"}, "owner/repo#N"),
        ({"clusters": ("mwms:x",)}, "mwms:x"),
    ],
    ids=["code", "phase", "like", "cluster"],
)
def test_a_fault_is_validated(change: dict[str, object], words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        replace(FAULT, **change)  # type: ignore[arg-type]


def test_names_are_words_joined_by_hyphens() -> None:
    assert make_name("MeanOfOwnShard") == "mean-of-own-shard"


@pytest.mark.parametrize("right", [True, False], ids=["right", "wrong"])
def test_the_command_ends_with_1_where_a_target_is_not_reached(
    right: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    cell = score(RIGHT if right else replace(RIGHT, code="scale-error"))

    def play(items: object, tell: Callable[..., None]) -> Score:
        tell(cell, 1, 1)
        return Score(faults=(cell,), unusual=())

    monkeypatch.setattr("distbench.selftest.run.run_selftest", play)
    file = tmp_path / "matrix.json"
    monkeypatch.setattr(sys, "argv", ["distbench", "selftest", "--json", str(file)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == (0 if right else 1)
    out = capsys.readouterr()
    assert ("passed" if right else "FAILED") in out.out
    assert "code right: " in out.out
    assert "two-kernels on mwms:4: " in out.err
    assert json.loads(file.read_text())["ok"] is right


def test_faults_are_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["distbench", "list", "faults"])
    with pytest.raises(SystemExit):
        main()
    out = capsys.readouterr().out
    assert all(sample.name in out for sample in (*FAULTS, *UNUSUAL))
