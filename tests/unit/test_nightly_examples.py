"""The files that users copy, and our own scripts, held against linters."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from imported_scripts import NIGHTLY, import_scripts
from ruamel.yaml import YAML
from waiting import comes_true

from distbench.history.quarantine import read_quarantine

pytestmark = pytest.mark.sweep  # starts many processes

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "nightly"
WORKFLOW = EXAMPLES / "github-workflow.yml"
BATCH = EXAMPLES / "nightly.sbatch"
SHELL = [
    BATCH,
    ROOT / ".ci" / "run",
    *sorted(
        path
        for path in (ROOT / "scripts").iterdir()
        if path.is_file() and path.suffix in ("", ".sh")
    ),
]


def run_shellcheck(text: str, *words: str) -> list[str]:
    """What shellcheck says of a script that it reads from the root of the checkout."""
    done = subprocess.run(
        [Path(sys.executable).with_name("shellcheck"), "--format=gcc", *words, "-"],
        input=text,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert not done.stderr
    return done.stdout.splitlines()


def check_workflow(path: Path) -> tuple[int, str]:
    """Hold a workflow against the schema that comes with the linter, not a network."""
    words = ["-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run(
        [sys.executable, *words, str(path)], capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout + done.stderr


def list_steps(text: str) -> list[dict[str, Any]]:
    (job,) = YAML(typ="safe").load(text)["jobs"].values()
    return list(job["steps"])


@pytest.mark.parametrize("path", SHELL, ids=lambda path: path.name)
def test_shell_scripts_have_no_mistake(path: Path) -> None:
    text = path.read_text("utf-8")
    assert run_shellcheck(text, "--external-sources", "--source-path=.") == []


def test_a_mistake_in_a_shell_script_is_found() -> None:
    text = BATCH.read_text("utf-8").replace('--out "$nights"', "--out $nights")
    [line] = run_shellcheck(text)
    assert "SC2086" in line


def test_the_workflow_is_one() -> None:
    code, said = check_workflow(WORKFLOW)
    assert code == 0, said


def test_a_mistake_in_a_workflow_is_found(tmp_path: Path) -> None:
    broken = tmp_path / "workflow.yml"
    broken.write_text(WORKFLOW.read_text("utf-8").replace("runs-on", "run-on"))
    code, said = check_workflow(broken)
    assert code == 1
    assert "runs-on" in said


def test_the_workflows_steps_are_shell_scripts() -> None:
    steps = [step["run"] for step in list_steps(WORKFLOW.read_text()) if "run" in step]
    assert len(steps) == 2
    for step in steps:
        # An expression is put in before a shell sees it, so it belongs in `env`.
        assert "${{" not in step
        assert run_shellcheck(step, "--shell=bash") == []


@pytest.mark.parametrize("made", [True, False])
def test_a_run_shows_its_own_night_or_none(tmp_path: Path, made: bool) -> None:
    """A step as the runner has it: in a clean checkout, and by `bash -e`."""
    *_, step = (s["run"] for s in list_steps(WORKFLOW.read_text()) if "run" in s)
    other, own = tmp_path / "nights" / "1-1", tmp_path / "nights" / "2-1"
    for place in (other, own)[: 1 + made]:
        (place / "2026-03-01T0117").mkdir(parents=True)
        (place / "2026-03-01T0117" / "summary.txt").write_text(place.name)
    checkout, summary = tmp_path / "checkout", tmp_path / "summary"
    checkout.mkdir()
    done = subprocess.run(
        ["bash", "-e", "-c", step],
        cwd=checkout,
        env={**os.environ, "NIGHTS": str(own), "GITHUB_STEP_SUMMARY": str(summary)},
        check=False,
    )
    assert (done.returncode == 0) is made
    assert (summary.read_text() if made else list(checkout.iterdir())) == (
        "```\n2-1```\n" if made else []
    )


@pytest.mark.parametrize("path", [WORKFLOW, BATCH], ids=["workflow", "sbatch"])
def test_the_command_of_an_example_is_one(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """Each option is asked of the real script, which only lists its jobs."""
    text = path.read_text("utf-8").replace("\\\n", " ")
    [line] = re.findall(r"^ *scripts/nightly (.*?)(?: &)?$", text, re.MULTILINE)
    places = ("$NIGHTS", "$HISTORY", "$nights")
    values = {"$ONLY": "*", **dict.fromkeys(places, str(tmp_path))}
    words = [values.get(word.strip('"'), word.strip('"')) for word in line.split()]
    words = ["2" if word.startswith("$") else word for word in words]
    monkeypatch.chdir(ROOT)
    with import_scripts(*NIGHTLY) as scripts:
        assert scripts["nightly"].main([*words, "--list"]) == 0
    assert "adam-float32" in capsys.readouterr().out


def test_the_list_of_the_examples_is_one(tmp_path: Path) -> None:
    """As it is, and with its example taken in."""
    assert read_quarantine(EXAMPLES / "quarantine.ini") == ()
    head, mark, example = (EXAMPLES / "quarantine.ini").read_text().partition("# [")
    file = tmp_path / "quarantine.ini"
    file.write_text(head + (mark + example).replace("# ", ""))
    [entry] = read_quarantine(file)
    assert entry.codes == ("clip-before-reduction",)


def test_a_queue_that_ends_a_batch_job_gets_its_reports(tmp_path: Path) -> None:
    """The script hands SIGTERM on, waits for the night, and ends as it did."""
    place = tmp_path / "scripts"
    place.mkdir()
    nightly = place / "nightly"
    nightly.write_text(
        "#!/usr/bin/env bash\n"
        "trap 'sleep 0.5; echo written >report; exit 3' TERM\n"
        "echo started >started\n"
        "while :; do sleep 0.1; done\n"
    )
    nightly.chmod(0o755)
    batch = shutil.copy(BATCH, tmp_path)
    process = subprocess.Popen(
        ["bash", batch], env={**os.environ, "SLURM_SUBMIT_DIR": str(tmp_path)}
    )
    try:
        assert comes_true((tmp_path / "started").exists)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 3
    finally:
        process.kill()
    assert (tmp_path / "report").read_text() == "written\n"
