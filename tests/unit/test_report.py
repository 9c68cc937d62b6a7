"""What the user reads: table, findings, HTML."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from input_checks import check_escaped
from rich.console import Console
from verdict_samples import EVIL, FAILED, TEXTS, make_finding, make_run, make_verdict

from distbench.escape import escape_controls
from distbench.options import CheckOptions
from distbench.report.junit import verdict_to_junit
from distbench.report.page import verdict_to_html
from distbench.report.table import make_table, render_verdict
from distbench.report.words import collect_findings, format_command, join_words
from distbench.verdict import Status, Verdict


def print_verdict(verdict: Verdict, options: CheckOptions | None = None) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=300, highlight=False)
    console.print(render_verdict(verdict, options or CheckOptions()))
    return stream.getvalue()


def test_the_report_has_runs_findings_reasons_and_a_summary() -> None:
    text = print_verdict(FAILED)
    assert "mlp-adam-mwms:2-none" in text
    assert "412" in text
    assert "0.25" in text
    assert "need 2 GPUs, have 0" in text
    assert "Step 0: nobody sums; let the optimizer aggregate." in text
    assert "fail: 2 fail, 1 skipped" in text
    assert "distbench explain missing-reduction" in text


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("replicas-diverged", "shown by how the values differ"),
        ("unexplained", "no known cause foretells the numbers of the error"),
    ],
)
def test_a_cause_that_foretells_no_number_has_no_share(code: str, words: str) -> None:
    finding = make_finding(code=code, confidence=0.0, confirmed=True)
    run = make_run(Status.FAIL, findings=(finding,))
    text = print_verdict(make_verdict(run))
    assert words in text
    assert "0 %" not in text
    assert "confirmed: with the right gradient put in its place" in text


def test_the_last_line_has_the_time_that_the_user_waited() -> None:
    """Runs may share their time, or lie beside each other; several checks as well."""
    assert "1 skipped in 5.2 s\n" in print_verdict(replace(FAILED, seconds=5.21))
    assert "1 skipped, 2.7 s of runs\n" in print_verdict(FAILED)


def test_one_cause_in_two_tiers_is_told_once() -> None:
    text = print_verdict(FAILED)
    assert text.count("nobody sums") == 1
    assert "mlp-adam-mwms:2-none [bounded] and mlp-adam-mwms:2-none [exact]" in text


def test_findings_of_several_runs_come_in_causal_order() -> None:
    """Each run keeps its own order; warnings come last, and subjects stay together."""
    late, early = (make_finding(code="scale-error", step=step) for step in (2, 0))
    first = make_finding(step=1, phase="loss", variable="")
    warning = make_finding(code="lower-precision", warning=True)
    runs = (
        make_run(Status.FAIL, findings=(first, late, warning)),
        make_run(Status.FAIL, findings=(make_finding(),), tier="exact"),
        make_run(Status.FAIL, findings=(early,), setup={"target": "other.py:sgd"}),
    )
    found = collect_findings(make_verdict(*runs))
    assert [(s.finding.code, s.finding.step) for s in found] == [
        ("missing-reduction", 0),
        ("missing-reduction", 1),
        ("scale-error", 2),
        ("lower-precision", 0),
    ]
    assert found[2].runs == (runs[0], runs[2])


def test_findings_of_two_origins_stay_apart() -> None:
    finding = make_finding()
    other = make_finding(origin="framework")
    verdict = make_verdict(make_run(Status.FAIL, findings=(finding, other)))
    assert len(collect_findings(verdict)) == 2
    assert "the framework's, not the subject's" in print_verdict(verdict)


def test_a_warning_of_a_passed_run_is_told_as_one() -> None:
    warning = make_finding(code="lower-precision", warning=True)
    text = print_verdict(make_verdict(make_run(Status.PASS, findings=(warning,))))
    assert "warning: lower-precision" in text
    assert "pass: 1 pass" in text


def test_an_error_shows_what_helps_to_debug_it() -> None:
    run = make_run(Status.ERROR, message="worker-1 died", detail="log line\n  stack")
    text = print_verdict(make_verdict(run))
    assert "worker-1 died" in text
    assert "    log line" in [line.rstrip() for line in text.splitlines()]


def test_a_finding_comes_before_the_traceback_that_it_is_of() -> None:
    finding = make_finding(code="raises")
    runs = (
        make_run(Status.FAIL, detail="Traceback", findings=(finding,)),
        make_run(Status.ERROR, scenario="other", message="lost", detail="log"),
    )
    text = print_verdict(make_verdict(*runs))
    places = [text.index(words) for words in ("    log", "1. raises", "    Traceback")]
    assert places == sorted(places)


def test_a_verdict_without_runs_is_printed() -> None:
    assert "vacuous: no runs" in print_verdict(make_verdict())


def test_long_ids_are_never_cut_short() -> None:
    scenario = "embedding-" + "x" * 150 + "-mwms:2-aggregator-two-stage"
    stream = io.StringIO()
    Console(file=stream, width=60).print(
        render_verdict(make_verdict(make_run(scenario=scenario)), CheckOptions())
    )
    assert "…" not in stream.getvalue()
    assert stream.getvalue().count("x") >= 150


def test_a_narrow_terminal_still_names_each_run() -> None:
    stream = io.StringIO()
    Console(file=stream, width=40).print(make_table(make_verdict(make_run())))
    lines = stream.getvalue().splitlines()
    first = re.search("scen[a-z]* ", stream.getvalue())
    assert first is not None
    told = "".join(line[1 : len(first[0])] for line in lines)
    assert make_run().scenario in told.replace(" ", "")
    assert "…" not in stream.getvalue()


def test_a_long_path_stays_in_one_piece() -> None:
    target = f"/home/somebody/{'a_folder/' * 12}optimizers.py:make_adam"
    stream = io.StringIO()
    report = render_verdict(replace(FAILED, target=target), CheckOptions())
    Console(file=stream, width=80).print(report, crop=False)
    lines = [line.strip() for line in stream.getvalue().splitlines()]
    assert lines[0] == target
    [command] = [line for line in lines if line.startswith("reproduce")]
    assert target in command
    assert command.endswith("--path none --tier bounded --workload mlp")


def test_names_can_neither_steer_the_terminal_nor_break_the_report() -> None:
    finding = make_finding(variable=EVIL, explanation=EVIL, code=EVIL)
    run = make_run(
        Status.FAIL, scenario=EVIL, message=EVIL, detail=EVIL, findings=(finding,)
    )
    text = print_verdict(make_verdict(run, target=EVIL))
    assert not {"\x1b", "\x00", "\u202e", "\ud800"} & set(text)
    assert "dense[bold]/k\\x1b[31m<&" in text
    page = verdict_to_html(make_verdict(run, target=EVIL), CheckOptions())
    assert "dense[bold]/k\\x1b[31m&lt;&amp;" in page
    page.encode()


@pytest.mark.parametrize("text", TEXTS)
def test_escaped_text_is_printable(text: str) -> None:
    check_escaped(text)


def test_what_can_be_printed_is_not_escaped() -> None:
    assert escape_controls("plain Σ ℓ_i · é 模型") == "plain Σ ℓ_i · é 模型"


def test_the_command_reproduces_with_the_same_options() -> None:
    options = CheckOptions(
        steps=5, seed=7, split=(5, 3), jit=False, timeout_s=60, keras="legacy"
    )
    command = format_command("my dir/o.py:adam", make_run(), options)
    assert command == (
        "distbench check 'my dir/o.py:adam' -c mwms:2 --path none --tier bounded "
        "--workload mlp --steps 5 --seed 7 --keras legacy --split 5,3 --jit off "
        "--timeout 60"
    )


_ADAM = "distbench check o.py:adam -c mwms:2 --path none --tier bounded --workload mlp"


@pytest.mark.parametrize(
    ("setup", "command"),
    [
        ({"target": "o.py:adam", "split": [5, 3]}, _ADAM),
        ({"target": "o.py:adam", "split": [8, 0]}, f"{_ADAM} --split 8,0"),
        (
            {"target": "o.py:adam", "steps": 5, "jit": False, "restore_from": ""},
            f"{_ADAM} --steps 5 --jit off",
        ),
        (
            {"target": "o.py:adam", "loss_weight": 2.0**-20, "timeout_s": 1234567.0},
            f"{_ADAM} --loss-weight 9.5367431640625e-07 --timeout 1234567",
        ),
        ({"target": "Program", "split": [5, 3]}, "pytest 'test_a.py::test_it[x]'"),
    ],
    ids=["usual", "split", "options", "numbers", "unnamed"],
)
def test_a_run_of_a_test_suite_says_itself_how_it_was_made(setup, command) -> None:
    run = make_run(setup={**setup, "test": "test_a.py::test_it[x]"})
    assert format_command("o.py:adam, o.py:sgd", run, CheckOptions()) == command


def test_a_run_of_several_checks_is_reproduced_with_its_own_options() -> None:
    setup = {
        "target": "sgd.py:make",
        "dtype": "float64",
        "examples": 64,
        "restore_from": "",
        "partitioner": "",
        "restore_partitioner": "",
        "keras": None,
        "jit": None,
        "timeout_s": 120.0,
        "split": [40, 24],
    }
    run = make_run(Status.FAIL, findings=(make_finding(),), setup=setup)
    verdict = make_verdict(run, target="a night")
    lines = [line.rstrip() for line in print_verdict(verdict).splitlines()]
    assert (
        "   reproduce  distbench check sgd.py:make -c mwms:2 --path none "
        "--tier bounded --workload mlp --dtype float64 --examples 64"
    ) in lines
    assert 'classname="sgd.py:make"' in verdict_to_junit(verdict)
    test = replace(run, setup={"target": "x", "test": "scenarios/test_x.py::test_y[a]"})
    shown = print_verdict(make_verdict(test))
    assert "reproduce  pytest 'scenarios/test_x.py::test_y[a]'" in shown


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, ""),
        (1, "0"),
        (2, "0 and 1"),
        (3, "0, 1 and 2"),
        (9, "0, 1, 2, 3, 4 and 4 more"),
    ],
)
def test_lists_are_words(count: int, expected: str) -> None:
    assert join_words(map(str, range(count))) == expected


def test_a_detail_is_indented_and_not_filled_up_with_spaces() -> None:
    detail = "short\n" + "long " * 100 + "\n\n  deep"
    stream = io.StringIO()
    run = make_run(Status.ERROR, message="broken", detail=detail)
    report = render_verdict(make_verdict(run), CheckOptions())
    Console(file=stream, width=80).print(report)
    begin, _, told = stream.getvalue().partition(": broken\n")
    lines = told.splitlines()
    assert begin
    assert lines[0] == "    short"
    assert all(line.startswith("    long") for line in lines[1:7])
    assert "      deep" in lines
    assert max(map(len, lines)) <= 80
