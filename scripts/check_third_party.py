#!/usr/bin/env python3
"""Check optimizers from PyPI, as they are and with planted bugs; write the outcome.

Each package gets an environment of its own, with this checkout's distbench, by the pip
commands that its module in scenarios/third_party declares. `distbench check` runs in
it, every run is compared with what has to come out, and docs/third-party.md is written.

    python scripts/check_third_party.py --envs .envs
    python scripts/check_third_party.py --only larq --output larq.md

Exit code 0: everything came out as expected. 1: a run differs. 3: an environment could
not be made, or a check did not come to a verdict.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from measured import ROOT
from third_party_cases import PACKAGES, Package, Quote, Subject
from third_party_page import Outcome, Row, make_page

PAGE = ROOT / "docs" / "third-party.md"
FACTORIES = ROOT / "scenarios" / "third_party"
_INSTALL_S = 1800.0
_CHECK_S = 600.0
_DIFFERS, _BROKEN = 1, 3
_VERSIONS = ("tensorflow", "tf_keras", "numpy")


class BrokenError(Exception):
    """The machine's or a package's part failed; nothing is said about the bench."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A virtual environment for one package."""

    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def distbench(self) -> Path:
        """Its command line of the bench."""
        return self.folder / "bin" / "distbench"

    @property
    def site_packages(self) -> Path:
        """Where its packages are."""
        return next(self.folder.glob("lib/python*/site-packages"))


def run_command(command: Sequence[str | Path], timeout_s: float) -> tuple[int, str]:
    """Run a program in the checkout; returns its exit code and output."""
    # Neither this interpreter's packages nor the checkout's may shadow the
    # environment's: what is installed there is what is checked.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as error:
        raise BrokenError(
            f"{shlex.join(map(str, command))} took more than {timeout_s:.0f} s."
        ) from error
    return done.returncode, done.stdout


def make_environment(folder: Path, module: ModuleType) -> Environment:
    """Make the environment that a module of factories asks for, or bring it up to date.

    Raises:
        BrokenError: A pip command failed; has its last lines.
    """
    environment = Environment(folder=folder)
    commands: list[list[str | Path]] = []
    if not environment.python.exists():
        commands.append([sys.executable, "-m", "venv", folder])
    # pip builds a local folder anew every time, so the bench is never an old one.
    commands += [
        [environment.python, "-m", "pip", "install", "--quiet", *shlex.split(words)]
        for words in module.PIP_INSTALL
    ]
    for command in commands:
        code, output = run_command(command, _INSTALL_S)
        if code:
            raise BrokenError(
                f"{shlex.join(map(str, command))} ended with {code}:\n{output[-2000:]}"
            )
    return environment


def load_factories(package: Package) -> ModuleType:
    """Import a module of factories; it imports its package only when called."""
    path = FACTORIES / f"{package.module}.py"
    spec = importlib.util.spec_from_file_location(package.module, path)
    if spec is None or spec.loader is None:
        raise BrokenError(f"{path} cannot be imported.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def list_arguments(subject: Subject, keras: str | None) -> list[str]:
    """What follows `distbench check` for a subject."""
    target = (FACTORIES / subject.target).relative_to(ROOT)
    words = [str(target)]
    for cluster in subject.expected:
        words += ["-c", cluster]
    for workload in subject.workloads:
        words += ["--workload", workload]
    if keras is not None:
        words += ["--keras", keras]
    return words


def check_subject(
    environment: Environment, subject: Subject, keras: str | None
) -> Iterator[Row]:
    """Run the bench on a subject and lay its runs beside what was expected.

    Raises:
        BrokenError: There was no verdict: bad usage, or a crash. Or a cluster is
            missing in it.
    """
    verdict = environment.folder / "verdict.json"
    verdict.unlink(missing_ok=True)
    words = list_arguments(subject, keras)
    code, output = run_command(
        [environment.distbench, "check", *words, "--json", verdict], _CHECK_S
    )
    if not verdict.exists():
        raise BrokenError(
            f"distbench check {shlex.join(words)} ended with {code} and without a "
            f"verdict:\n{output[-2000:]}"
        )
    runs = json.loads(verdict.read_text(encoding="utf-8"))["runs"]
    if missing := set(subject.expected) - {_name_cluster(run) for run in runs}:
        raise BrokenError(
            f"distbench check {shlex.join(words)} ran nothing on {sorted(missing)}."
        )
    for run in runs:
        cluster = _name_cluster(run)
        expected = subject.expect(cluster, run["workload"])
        yield Row(subject=subject, expected=expected, run=run)


def _name_cluster(run: Mapping[str, Any]) -> str:
    return str(run["cluster"]).partition("@")[0]


def find_quote(environment: Environment, quote: Quote) -> str:
    """A line of an installed package, with its number.

    Raises:
        BrokenError: The source has changed, and what rests on it must be read again.
    """
    path = environment.site_packages / quote.file
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        if quote.text in line:
            return f"- `{quote.file}:{number}`: `{line.strip()}` - {quote.says}"
    raise BrokenError(f"{path} has no line with {quote.text!r} any more.")


def read_versions(environment: Environment, package: Package) -> str:
    """What is installed, in words."""
    script = (
        "import importlib.metadata as m, platform, sys; "
        "print(*[f'{n} {m.version(n)}' for n in sys.argv[1:]], "
        "'Python ' + platform.python_version(), sep=', ')"
    )
    code, output = run_command(
        [environment.python, "-c", script, package.name, *_VERSIONS], 60.0
    )
    if code:
        raise BrokenError(f"The versions of {package.name} cannot be read:\n{output}")
    return output.strip()


def check_package(package: Package, envs: Path) -> Outcome:
    """Make a package's environment and check all of its subjects."""
    module = load_factories(package)
    print(f"{package.name}: installing into {envs / package.module}", flush=True)
    environment = make_environment(envs / package.module, module)
    quotes = tuple(find_quote(environment, quote) for quote in package.quotes)
    rows: list[Row] = []
    for subject in package.subjects:
        found = tuple(
            check_subject(environment, subject, getattr(module, "KERAS", None))
        )
        rows += found
        wrong = sum(row.differs for row in found)
        print(f"  {subject.label}: {len(found)} runs, {wrong} unexpected", flush=True)
    return Outcome(
        package=package,
        commands=module.PIP_INSTALL,
        versions=read_versions(environment, package),
        quotes=quotes,
        rows=tuple(rows),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, write, and compare; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--envs", type=Path, default=ROOT / ".envs", metavar="FOLDER")
    parser.add_argument("--only", metavar="PACKAGE", help="its name on PyPI")
    parser.add_argument("--output", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    chosen = [p for p in PACKAGES if options.only in (None, p.name)]
    if not chosen:
        names = ", ".join(package.name for package in PACKAGES)
        parser.error(f"--only: expected one of {names}. Received: {options.only!r}.")
    if options.only is not None and options.output is None:
        parser.error(f"--only needs --output: {PAGE} shows all packages.")
    try:
        outcomes = [check_package(p, options.envs.absolute()) for p in chosen]
    except BrokenError as error:
        print(f"check_third_party: {error}", file=sys.stderr)
        return _BROKEN
    page = options.output or PAGE
    page.write_text(make_page(outcomes), encoding="utf-8")
    differing = [row for outcome in outcomes for row in outcome.rows if row.differs]
    for row in differing:
        print(
            f"{row.subject.target} on {row.run['cluster']} [{row.run['tier']}]: "
            f"expected {row.expected}, received {row.run['status']} {row.finding}",
            file=sys.stderr,
        )
    return _DIFFERS if differing else 0


if __name__ == "__main__":
    sys.exit(main())
