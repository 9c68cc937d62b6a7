"""Runs a check under another installed environment: what is installed decides."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from distbench.errors import BadInputError, ClusterError
from distbench.launch.bootstrap import die_with_parent
from distbench.trace import Trace
from distbench.trace.folder import read_folder
from distbench.verdict import Status, Verdict
from distbench.verdict.document import verdict_from_json

_LIST = """
import importlib.metadata, importlib.util, json, sys
names = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions()}
lacks = [n for n in sys.argv[1:] if importlib.util.find_spec(n) is None]
print(json.dumps([lacks, {"python": sys.version.split()[0], **names}]))
"""
_MODULES = ("distbench", "tensorflow", "tf_keras")
"""What a check imports; TensorFlow is installed under several names."""
_FIRST = ("tensorflow", "tf_keras", "keras", "numpy")
"""What a step computes with, and what changed is asked about first."""
_ASK_S = 60.0
_GRACE_S = 20.0
_SHOWN = 600
_INHERITED = ("PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
"""Variables that would lead one environment's Python to another's packages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """An installed environment.

    Attributes:
        place: As it was named.
        python: Its Python.
        packages: Versions of what is installed in it, and of `python`, by name.
    """

    place: Path
    python: Path
    packages: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A check under an environment.

    Attributes:
        verdict: What it said.
        traces: `observed` and `reference`, by scenario and tier; none of a run that
            ended before.
    """

    verdict: Verdict
    traces: Mapping[tuple[str, str], Mapping[str, Trace]]


def find_environment(place: Path) -> Environment:
    """The environment in a folder, or of a Python.

    Raises:
        BadInputError: There is none, or what a check needs is not installed in it.
    """
    file = place if place.is_file() else place / "bin" / "python"
    if not file.is_file():
        raise BadInputError(
            f"'{place}' is no environment. Expected: a folder that 'python -m venv' "
            f"made, with 'bin/python' in it, or a Python. Received: no file '{file}'."
        )
    python = file.absolute()
    try:
        done = subprocess.run(
            # Alone, or what lies in this folder would count as installed.
            [python, "-I", "-c", _LIST, *_MODULES],
            capture_output=True,
            text=True,
            timeout=_ASK_S,
            env=_make_variables(),
            check=True,
        )
        lacks, packages = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        said = getattr(error, "stderr", None) or str(error)
        raise BadInputError(
            f"'{python}' does not run as a Python: {said.strip()}. Expected: a folder "
            "that 'python -m venv' made, or the Python in its folder 'bin'."
        ) from error
    if lacks:
        raise BadInputError(
            f"'{place}' has no {', '.join(lacks)}. Install what is missing there: "
            f"{python} -m pip install {' '.join(lacks)}."
        )
    return Environment(place=place, python=python, packages=packages)


def list_changes(before: Environment, after: Environment) -> list[str]:
    """What is installed in another version, in words: first what most depends on.

    What only one of them has comes last: there are tools that nothing of a step uses.
    """
    names = {*before.packages, *after.packages}
    both = before.packages.keys() & after.packages.keys()

    def rank(name: str) -> tuple[int, bool, str]:
        plain = name.lower().replace("-", "_")
        first = _FIRST.index(plain) if plain in _FIRST else len(_FIRST)
        return first, name not in both, plain

    pairs = [
        (n, *(e.packages.get(n, "nothing") for e in (before, after)))
        for n in sorted(names, key=rank)
    ]
    return [f"{name} {a} -> {b}" for name, a, b in pairs if a != b]


def check_under(
    environment: Environment, words: Sequence[str], folder: Path, timeout_s: float
) -> Ran:
    """Run `distbench check` in an environment.

    Args:
        environment: Which.
        words: Target and options.
        folder: An empty one; it gets the verdict and the traces.
        timeout_s: Deadline of the whole check.

    Raises:
        BadInputError: The check refuses its input there.
        ClusterError: It left no verdict.
    """
    verdict, kept = folder / "verdict.json", folder / "traces"
    command = [str(environment.python), "-m", "distbench", "check", *words]
    command += ["--json", str(verdict), "--keep", str(kept)]
    code, said = _run(command, timeout_s)
    if code == 2:
        raise BadInputError(f"Under '{environment.place}': {_find_refusal(said)}")
    try:
        found = verdict_from_json(verdict.read_text("utf-8"))
    except (OSError, BadInputError) as error:
        raise ClusterError(
            f"The check under '{environment.place}' left no verdict (exit code {code})",
            detail=said,
        ) from error
    if found.status is Status.ERROR:
        raise ClusterError(
            f"The check under '{environment.place}' ended in an error",
            detail=next(r.message for r in found.runs if r.status is Status.ERROR),
        )
    return Ran(
        verdict=found,
        traces={
            (place.parent.name, place.name): {
                name: read_folder(place / name) for name in ("observed", "reference")
            }
            for place in sorted(kept.glob("*/*"))
        },
    )


def _find_refusal(said: str) -> str:
    """The check's own last sentence, without the progress that it told before."""
    before, _, sentence = f"\n{said}".rpartition("\ndistbench: ")
    return sentence or before


def _run(command: Sequence[str], timeout_s: float) -> tuple[int, str]:
    """Exit code and last words of a command; its group ends with it."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=_make_variables(),
        start_new_session=True,
        # Who asked for it is gone then. Nothing else runs in the fork.
        preexec_fn=partial(die_with_parent, os.getpid()),
    )
    try:
        _, said = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise ClusterError(
            f"'{command[0]}' has not ended within {timeout_s:g} s. Give it more time "
            "(--timeout), or fewer steps."
        ) from None
    finally:
        _end(process)
    return process.returncode, said.strip()[-_SHOWN:]


def _end(process: subprocess.Popen[str]) -> None:
    """Have a check end its own tasks, and end it if it does not."""
    if process.poll() is not None:
        return
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=_GRACE_S)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _make_variables() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k not in _INHERITED}
