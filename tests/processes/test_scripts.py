"""The set-up scripts refuse what they cannot do, before they change anything."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A checkout with nothing but the scripts: whatever they make is seen."""
    nothing_else = shutil.ignore_patterns("*.py", "__pycache__")
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts", ignore=nothing_else)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def run_script(folder: Path, name: str, *words: str, **programs: str):
    """Run a script that finds these programs (shell text) before the real ones."""
    fakes = folder / "fakes"
    fakes.mkdir()
    for program, text in programs.items():
        path = fakes / program
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    return subprocess.run(
        [folder / "scripts" / name, *words],
        env={"PATH": f"{fakes}:/usr/bin:/bin", "HOME": os.environ.get("HOME", "/")},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_plain_pytest_collects_all_tests() -> None:
    """Python knows modules of tests by their names: two of one name are an error."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("*.py"))
    del names["conftest.py"]
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("name", ["test", "scenarios", "nightly"])
def test_another_system_is_refused(copy: Path, name: str) -> None:
    done = run_script(copy, name, uname="echo MINGW64_NT-10.0")
    assert done.returncode == 3
    assert f"{name}: distbench runs on Linux and macOS, and this is MING" in done.stderr
    assert not (copy / ".venv").exists()


def test_a_machine_without_a_fitting_python_is_told_so(copy: Path) -> None:
    pythons = dict.fromkeys(
        ["python3", "python3.10", "python3.11", "python3.12", "python3.13"], "exit 1"
    )
    done = run_script(copy, "scenarios", **pythons)
    assert done.returncode == 3
    assert "no Python from 3.10 to 3.13" in done.stderr
    assert not (copy / ".venv").exists()


@pytest.mark.parametrize("is_elsewhere", [True, False])
def test_a_script_that_is_called_from_elsewhere_says_where_it_runs(
    copy: Path, is_elsewhere: bool
) -> None:
    (copy / ".venv").mkdir()
    done = subprocess.run(
        [copy / "scripts" / "scenarios"],
        cwd=copy.parent if is_elsewhere else copy,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3
    assert (f"in {copy}: relative paths begin" in done.stderr) is is_elsewhere


def test_a_python_may_have_a_space_in_its_path(copy: Path) -> None:
    fake = copy / "a python"
    fake.write_text('#!/bin/sh\n[ "$1" = -c ] || exit 1\n')
    fake.chmod(0o755)
    source = "source scripts/setup.sh; find_python"
    env = {"PATH": "/usr/bin:/bin", "DISTBENCH_PYTHON": str(fake)}
    done = subprocess.run(
        ["bash", "-c", source], cwd=copy, env=env, capture_output=True, text=True
    )
    assert done.stdout == f"{fake}\n", done.stderr


@pytest.mark.parametrize("words", [("--slow",), ("--fast", "--all")], ids=" ".join)
def test_an_unknown_option_is_bad_usage(copy: Path, words: tuple[str, ...]) -> None:
    done = run_script(copy, "test", *words)
    assert done.returncode == 2
    assert "usage: scripts/test [--fast | --all | --engines]" in done.stderr


def test_the_set_up_runs_again_only_after_a_change(copy: Path) -> None:
    log = copy / "log"
    venv = f"""
case "$*" in
  *-m\\ venv*)
    mkdir -p .venv/bin
    printf '#!/bin/sh\\necho "$@" >>{log}\\n' >.venv/bin/python
    chmod +x .venv/bin/python ;;
esac"""
    source = "set -euo pipefail; source scripts/setup.sh; prepare_environment test"

    def prepare() -> int:
        env = {"PATH": f"{copy}:/usr/bin:/bin"}
        subprocess.run(["bash", "-c", source], cwd=copy, env=env, check=True)
        return log.read_text().count("pip install") if log.exists() else 0

    fake = copy / "python3.11"
    fake.write_text(f"#!/bin/sh\n{venv}\n")
    fake.chmod(0o755)
    assert prepare() == 1
    assert prepare() == 1
    with (copy / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    assert prepare() == 2


@pytest.mark.parametrize("is_own", [False, True])
def test_another_checkout_keeps_what_is_installed_in_its_environment(
    copy: Path, tmp_path: Path, is_own: bool
) -> None:
    other = tmp_path / "other" / "bin"
    other.mkdir(parents=True)
    told = copy.resolve() if is_own else "/home/me/distbench"
    python = other / "python"
    python.write_text(f'#!/bin/sh\ncase "$2" in *distbench*) echo {told} ;; esac\n')
    python.chmod(0o755)
    (copy / ".venv").symlink_to(other.parent)
    source = "set -euo pipefail; source scripts/setup.sh; prepare_environment test"
    done = subprocess.run(
        ["bash", "-c", source], cwd=copy, capture_output=True, text=True, check=False
    )
    assert done.returncode == (0 if is_own else 3), done.stderr
    assert ("where the distbench of /home/me/distbench" in done.stderr) is not is_own


@pytest.mark.parametrize("kind", ["folder", "link", "own"])
def test_an_environment_without_pip_is_kept_unless_it_was_made_here(
    copy: Path, tmp_path: Path, kind: str
) -> None:
    there = tmp_path / "other" if kind == "link" else copy / ".venv"
    (there / "bin").mkdir(parents=True)
    (there / "mine").touch()
    if kind == "link":
        (copy / ".venv").symlink_to(there)
    if kind != "folder":
        (there / "distbench-test.stamp").touch()
    done = run_script(copy, "scenarios", **{"python3.11": "mkdir .venv/bin; exit 0"})
    assert (there / "mine").exists() is (kind != "own")
    if kind != "own":
        assert done.returncode == 3
        assert ".venv has no pip, and these scripts did not make it" in done.stderr


def test_ci_calls_the_same_script() -> None:
    assert "scripts/test" in (ROOT / ".ci" / "run").read_text()
    scripts = [ROOT / "scripts" / n for n in ("test", "scenarios", "nightly", "docs")]
    for path in (ROOT / ".ci" / "run", *scripts):
        assert os.access(path, os.X_OK)
