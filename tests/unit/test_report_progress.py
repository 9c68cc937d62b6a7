"""What is told of a check while it runs."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console
from verdict_samples import FAILED, make_run

from distbench.options import CheckOptions
from distbench.report.progress import BarProgress, LineProgress, make_progress
from distbench.report.table import render_verdict
from distbench.scenario import Scenario
from distbench.verdict import Status


def make_scenario(workload: str, cluster: str, path: str = "default") -> Scenario:
    return Scenario(target="o.py:adam", workload=workload, cluster=cluster, path=path)


def test_progress_without_a_terminal_is_plain_lines() -> None:
    stream = io.StringIO()
    console = Console(file=io.StringIO())
    planned = [make_scenario("mlp", "ps:1+1"), make_scenario("mlp", "mwms:2", "none")]
    with make_progress(console, stream) as progress:
        assert isinstance(progress, LineProgress)
        progress.plan(planned)
        progress.start("mlp-adam-mwms:2-none")
        progress.finish(make_run(Status.FAIL))
    assert stream.getvalue() == (
        "2 scenarios\n"
        "[2/2] mlp-adam-mwms:2-none ...\n"
        "[2/2] mlp-adam-mwms:2-none [bounded]: fail (412 checked, 0.9 s)\n"
    )


def test_one_scenario_is_told_in_the_singular() -> None:
    stream = io.StringIO()
    LineProgress(stream).plan([make_scenario("mlp", "mwms:2")])
    assert stream.getvalue() == "1 scenario\n"


def test_progress_on_a_terminal_is_a_bar_for_each_cluster() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=120)
    planned = [
        make_scenario(workload, cluster)
        for workload in ("mlp", "linear")
        for cluster in ("mirrored:2", "mwms:2")
    ]
    with make_progress(console) as progress:
        assert isinstance(progress, BarProgress)
        progress.plan(planned)
        progress.start("mlp-adam-mwms:2-default")
        progress._bars.refresh()
        for tier in ("exact", "bounded"):
            progress.finish(make_run(scenario="mlp-adam-mwms:2-default", tier=tier))
        progress.start("linear-adam-mwms:2-default")
        rows = {row.description: row for row in progress._bars.tasks}
    assert list(rows) == ["mirrored:2", "mwms:2"]
    assert (rows["mwms:2"].completed, rows["mwms:2"].total) == (1, 2)
    assert rows["mwms:2"].fields["scenario"] == "linear-adam-mwms:2-default"
    assert (rows["mirrored:2"].completed, rows["mirrored:2"].started) == (0, False)
    assert "mlp-adam-mwms:2-default" in stream.getvalue()


@pytest.mark.parametrize("name", ["", "NO_COLOR"], ids=["colours", "no-colours"])
def test_no_color_leaves_colours_out(monkeypatch: pytest.MonkeyPatch, name) -> None:
    for variable in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    if name:
        monkeypatch.setenv(name, "1")
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=120)
    with make_progress(console) as progress:
        progress.plan([make_scenario("mlp", "mwms:2")])
        progress.start("mlp-adam-mwms:2-default")
    console.print(render_verdict(FAILED, CheckOptions()))
    codes = re.findall(r"\x1b\[([0-9;]*)m", stream.getvalue())
    is_color = [re.fullmatch(r"(.*;)?(3[0-8]|4[0-8]|9[0-7])(;.*)?", c) for c in codes]
    assert any(is_color) is not bool(name)
