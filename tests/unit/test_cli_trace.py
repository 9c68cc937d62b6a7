"""`distbench trace`: what it prints, and its exit codes."""

from __future__ import annotations

import errno
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from recorded_runs import average, train, write_parts
from rich.console import Console
from typer.testing import CliRunner, Result

from distbench.checking.kept import Kept, make_place
from distbench.cli import app
from distbench.compare.recorded.offline import Selection, compare_traces
from distbench.errors import BadInputError, ClusterError
from distbench.evidence import Evidence
from distbench.report.traces import render_comparison, render_trace
from distbench.trace.folder import read_folder


def call(*words: object) -> Result:
    return CliRunner().invoke(app, ["trace", *map(str, words)])


@pytest.fixture
def two(tmp_path: Path) -> Path:
    return write_parts(train(2), tmp_path / "two", tasks=2)


@pytest.fixture
def one(tmp_path: Path) -> Path:
    return write_parts(train(1), tmp_path / "one")


def test_show_lists_every_value(two: Path) -> None:
    done = call("show", two)
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert lines[0].startswith("two: 2 replicas, steps 0 to 2")
    assert len(lines) == 2 + len(read_folder(two).values)
    assert any("start" in line and "dense/kernel" in line for line in lines)


def test_show_prints_the_one_value_that_is_left(two: Path) -> None:
    selected = ("--step", 1, "--phase", "slot", "--variable", "m", "--replica", 0)
    done = call("show", two, *selected)
    assert done.exit_code == 0
    values = dict(read_folder(two).select(step=1, variable="SGD/dense/kernel/m"))
    value = next(v for k, v in values.items() if k.replica == 0)
    assert np.array2string(np.asarray(value), separator=", ") in done.output


def test_show_prints_rows(tmp_path: Path) -> None:
    folder = write_parts(train(1, sparse=True), tmp_path)
    done = call("show", folder, "--step", 0, "--phase", "local_gradient")
    assert "4 rows of [3]" in done.output
    assert "rows [0 0 1 2]" in done.output


def test_diff_of_runs_that_are_alike_is_0(two: Path, one: Path) -> None:
    assert call("diff", two, two).output.count("Equal bit by bit.") == 1
    done = call("diff", two, one)
    assert done.exit_code == 0
    assert "Equal but for rounding" in done.output
    assert call("diff", two, one, "--bits").exit_code == 1
    assert call("diff", two, two, "--bits").exit_code == 0


def test_diff_tells_the_first_difference(tmp_path: Path, one: Path) -> None:
    wrong = write_parts(train(2, reduce=average), tmp_path / "wrong")
    done = call("diff", wrong, one, "--rows", 3)
    assert done.exit_code == 1
    text = " ".join(done.output.split())
    assert (
        "First difference: step 0, reduced_gradient of 'dense/kernel', replicas 0 and "
        "1: ratio 0.5 (A to B)" in text
    )
    assert "In A it is the mean of what the replicas computed." in text
    assert "more (--rows)" in text
    assert call("diff", wrong, one, "--phase", "loss", "--step", 0).exit_code == 0


def test_a_narrow_terminal_shows_less_numbers_and_whole_names() -> None:
    wrong, right = train(2, reduce=average), train(1)
    comparison = compare_traces(wrong, right, Selection())
    values = list(wrong.select(step=0, phase="slot"))
    for width in (80, 120):
        stream = io.StringIO()
        console = Console(file=stream, width=width)
        console.print(render_comparison(wrong, right, comparison, width=width))
        console.print(render_trace(wrong, values, width))
        lines = stream.getvalue().splitlines()
        assert max(map(len, lines)) <= width
        assert any("different" in line and "dense/kernel" in line for line in lines)
        assert any("relative" in line for line in lines) == (width > 80)
        assert any(" max " in line for line in lines) == (width > 80)
        assert not any("…" in line for line in lines)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--phase", "gradient"), "Phase 'gradient' is not known"),
        (("--variable", "bias"), "Variable 'bias' is not known"),
        (("--step", 99), "has no step 99. Expected one of the steps 0 to 2."),
        (("--replica", 7), "has no replica 7. Expected one of the replicas 0 to 1."),
        (("--step", -1, "--phase", "loss"), "no value of all that was asked for"),
    ],
    ids=["phase", "variable", "step", "replica", "together"],
)
def test_bad_usage_is_2(two: Path, words: tuple[str, ...], said: str) -> None:
    done = call("show", two, *words)
    assert done.exit_code == 2
    assert said in done.output


def test_a_name_that_ends_several_paths_is_refused(tmp_path: Path) -> None:
    a = train(1)
    twice = (*a.variables, replace(a.variables[0], path="other/kernel"))
    folder = write_parts(replace(a, variables=twice), tmp_path / "a")
    assert call("show", folder, "--variable", "kernel").exit_code == 0
    assert call("diff", folder, tmp_path / "none").exit_code == 2
    assert call("diff", folder, folder, "--narrow", "float8").exit_code == 2
    done = call("diff", folder, folder, "--step", 7)
    assert done.exit_code == 2
    assert "has no step 7. Expected one of the steps 0 to 2." in done.output
    done = call("diff", folder, folder, "--step", -1, "--phase", "loss")
    assert done.exit_code == 2
    assert "nothing in common" in done.output


def test_what_a_check_keeps_can_be_shown(tmp_path: Path) -> None:
    evidence = Evidence(tier="bounded", observed=train(2), reference=train(1))
    Kept.find(tmp_path / "kept", "linear-adam-mwms:2-default").write(evidence)
    place = tmp_path / "kept" / "linear-adam-mwms:2-default" / "bounded"
    done = call("diff", place / "observed", place / "reference")
    assert done.exit_code == 0, done.output
    assert "There are traces in" in call("show", tmp_path / "kept").output


def test_traces_of_a_scenario_with_a_long_name_are_kept_and_cleared(
    tmp_path: Path,
) -> None:
    evidence = Evidence(tier="bounded", observed=train(2), reference=train(1))
    names = [f"linear-{'m' * 260}-mwms:{n}-default" for n in (2, 4)]
    for name in names:
        Kept.find(tmp_path, name).write(evidence)
    assert len([*tmp_path.rglob("trace.json")]) == 4
    Kept.find(tmp_path, names[0]).clear()
    assert len([*tmp_path.rglob("trace.json")]) == 2


def test_a_place_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInputError, match="cannot be made"):
        make_place(tmp_path / "file" / "below")


def test_traces_that_cannot_be_kept_are_the_machines_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill_disk(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("distbench.checking.kept.write_trace", fill_disk)
    evidence = Evidence(tier="bounded", observed=train(2), reference=train(1))
    with pytest.raises(ClusterError, match=r"observed' could not be written: .*space"):
        Kept.find(tmp_path / "kept", "adam").write(evidence)
