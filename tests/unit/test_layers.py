"""Imports point one way, and what starts often stays cheap."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "distbench"

# What each module or package may import of distbench, besides itself: the longest name
# here that it begins with says which it belongs to. `launch` and
# `worker` meet in files and messages only; `compare` and `diagnose` see no processes.
_DATA = {
    "errors",
    "cluster",
    "fault",
    "digits",
    "dyadic",
    "split",
    "partitioner",
    "scenario",
    "target",
    "codes",
    "machine",
    "xla",
}
_TRACE = {"trace.files", "trace.folder", "trace.naming"}
_LOOKING = {"worker.process", "worker.state", "worker.taps"}
_EXPLAINING = {
    "diagnose.addends",
    "diagnose.context",
    "diagnose.fit",
    "diagnose.names",
}
_JUDGED = {*_DATA, "trace", "evidence", "flight", "verdict", "details"}
_REPORTED = {
    *_DATA,
    "escape",
    "trace",
    "verdict",
    "details",
    "options",
    "expect",
    "report",
    "history",
}
_TOP = {
    *_JUDGED,
    "options",
    "expect",
    "launch",
    "engines",
    "compare",
    "diagnose",
    "observe",
}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "escape": set(),
    "cluster": {"errors"},
    "digits": {"errors"},
    "dyadic": set(),
    "xla": set(),
    "locks": set(),
    "split": {"errors"},
    "partitioner": {"errors", "cluster"},
    "fault": {"errors", "cluster"},
    "typed": {"errors"},
    "limits": {"errors"},
    "scenario": {"errors", "cluster", "fault", "limits", "partitioner", "split"},
    "carried": set(),
    "pickling": {"errors", "locks"},
    "target": {"errors", "carried", "machine", "pickling"},
    "codes": {"errors"},
    "machine": {"errors", "cluster"},
    "trace": {"errors"},
    "trace.folder": {"errors", "trace", "trace.files"},
    "trace.naming": {"trace"},
    "trace.files": {"errors", "trace"},
    "evidence": {"scenario", "trace"},
    "flight": {"evidence", "trace"},
    "details": set(),
    "verdict": {"errors", "details", "escape"},
    "verdict.document": {"errors", "details", "verdict"},
    "expect": {"verdict"},
    "stop": {"errors", "cluster", "trace"},
    "pattern": set(),
    "history": {"errors", "scenario", "split", "verdict"},
    "history.suite": {"verdict"},
    "history.quarantine": {"errors", "codes", "pattern", "verdict"},
    "options": {
        "errors",
        "cluster",
        "codes",
        "fault",
        "limits",
        "partitioner",
        "scenario",
        "typed",
        "verdict",
    },
    "launch": {"errors", "cluster", "escape", "locks", "machine"},
    "agent": {"errors", "cluster", "launch"},
    "engines": {"errors", "cluster", "launch", "machine", "agent", "options"},
    "worker.state": {"errors", "partitioner", "trace"},
    "worker.process": {"errors", "cluster", "launch", "pickling", "worker.state"},
    "worker.taps": {"launch", "stop", "trace", "worker.process", "worker.state"},
    "worker.families": {"errors", "scenario", "trace", *_LOOKING},
    "worker.recording": {"errors", "trace", *_TRACE, *_LOOKING, "worker.families"},
    "worker.stepping": {*_DATA, "trace", *_LOOKING, "worker.families"},
    "worker.workloads": {"errors", "digits", "dyadic"},
    "worker.subjects": {
        *_DATA,
        "trace",
        *_LOOKING,
        "worker.families",
        "worker.stepping",
        "worker.workloads",
    },
    "worker.one_device": {
        "evidence",
        "scenario",
        "trace",
        "trace.naming",
        *_LOOKING,
        "worker.stepping",
        "worker.subjects",
    },
    "worker.in_flight": {
        "scenario",
        "trace",
        *_LOOKING,
        "worker.one_device",
        "worker.stepping",
    },
    "worker": {
        "pickling",
        *_JUDGED,
        "launch",
        "progress",
        "stop",
        *_TRACE,
        *_LOOKING,
        "worker.families",
        "worker.in_flight",
        "worker.one_device",
        "worker.stepping",
        "worker.subjects",
    },
    "compare": {*_JUDGED - _DATA, "errors", *_TRACE},
    "diagnose.names": set(),
    "diagnose.fit": {"compare"},
    "diagnose.context": {"evidence", "trace", "compare"},
    "diagnose.addends": {"compare", "diagnose.context", "trace"},
    "diagnose.hypotheses": {"compare", "trace", *_EXPLAINING},
    "diagnose": {
        *_JUDGED - _DATA,
        "codes",
        "compare",
        *_EXPLAINING,
        "diagnose.hypotheses",
    },
    "report": {*_REPORTED, "trace", "compare"},
    "repro": {*_DATA, "verdict"},
    "environments": {
        "errors",
        "launch",
        "trace",
        "trace.folder",
        "verdict",
        "verdict.document",
    },
    "shrink": {"errors", "cluster", "options", "scenario", "verdict"},
    "observe": {*_JUDGED, "launch", "stop", "trace.files"},
    "summaries": {*_JUDGED, "options", "launch", "observe", "checking.launches"},
    "checking": set(),
    "checking.detailing": {*_JUDGED - _DATA, "compare"},
    "checking.confirm": {"trace", "evidence", "verdict", "diagnose"},
    "checking.origin": {
        "scenario",
        "target",
        "trace",
        "evidence",
        "verdict",
        "launch",
    },
    "checking.kept": {"errors", "evidence", "trace.files"},
    "checking.stuck": {"cluster", "codes", "launch", "trace", "trace.files", "verdict"},
    "checking.controls": {*_TOP, "checking.origin", "locks"},
    "checking.plan": {
        "errors",
        "cluster",
        "fault",
        "machine",
        "options",
        "scenario",
        "xla",
    },
    "checking.runs": {"checking.plan", "evidence", "trace", "verdict"},
    "checking.failing": {
        *_TOP,
        "checking.controls",
        "checking.origin",
        "checking.plan",
        "checking.runs",
        "checking.stuck",
    },
    "checking.races": {"checking.origin", "verdict"},
    "checking.flights": {
        *_TOP,
        "checking.controls",
        "checking.origin",
        "checking.plan",
        "checking.races",
    },
    "checking.lanes": {"launch"},
    "checking.launches": {"errors", "launch", "observe", "options"},
    "checking.telling": {"options", "scenario", "verdict"},
    "checking.own_keras": {"errors", "observe", "options"},
    "checking.debugging": {
        *_TOP,
        "checking.launches",
        "checking.own_keras",
        "checking.plan",
        "stop",
    },
    "checking.judging": {
        *_TOP,
        "checking.confirm",
        "checking.controls",
        "checking.detailing",
        "checking.failing",
        "checking.flights",
        "checking.kept",
        "checking.origin",
        "checking.plan",
        "checking.runs",
    },
    "checking.checker": {
        *_TOP,
        "checking.judging",
        "checking.lanes",
        "checking.launches",
        "checking.own_keras",
        "checking.plan",
        "checking.runs",
        "checking.telling",
    },
    "api": {*_TOP, "checking.checker", "typed"},
    # Runs in the user's own process, which has TensorFlow.
    "recording": {"errors", "worker.recording"},
    "progress": set(),
    "call": {
        "errors",
        "cluster",
        "fault",
        "engines",
        "limits",
        "observe",
        "launch",
        "pickling",
        "typed",
    },
    "doctor": {"errors", "machine", "launch"},
    # Catalogues of what users write: read without TensorFlow, run in tasks alone.
    "samples": set(),
    "faults": {"errors", "cluster", "split", "codes", "trace", "samples", "unusual"},
    "unusual": {"cluster", "samples"},
    "selftest": {*_TOP, "checking.checker", "faults", "unusual"},
    "cli": {
        *_REPORTED,
        "checking.checker",
        "checking.debugging",
        "checking.kept",
        "compare",
        "doctor",
        "environments",
        "faults",
        "history.quarantine",
        "launch",
        "pattern",
        "repro",
        "selftest",
        "shrink",
        "stop",
        "summaries",
        "trace",
        "trace.folder",
        "unusual",
        "verdict.document",
    },
    "pytest_plugin": {
        *_TOP,
        "checking.checker",
        "api",
        "call",
        "report",
        "history.suite",
        "summaries",
        "verdict.document",
    },
    "__init__": {"api", "call", "fault", "progress", "recording", "verdict"},
    "__main__": {"cli"},
}
HEAVY = ("tensorflow", "tf_keras", "keras")


@functools.cache
def list_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def name_layer(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return find_layer(".".join(p for p in parts if p != "__init__") or "__init__")


def find_layer(module: str) -> str:
    """The longest name in `ALLOWED` that a module of distbench begins with."""
    parts = module.split(".")
    names = [".".join(parts[:size]) for size in range(len(parts), 0, -1)]
    return next((name for name in names if name in ALLOWED), module)


@functools.cache
def list_imports(path: Path) -> tuple[str, ...]:
    """Every imported module, in functions and under TYPE_CHECKING too."""
    return tuple(_find_imports(path))


def _find_imports(path: Path) -> Iterator[str]:
    for node in _list_statements(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = str(node.module)
            if module == "distbench":
                yield from (f"distbench.{alias.name}" for alias in node.names)
            else:
                yield module


def _list_statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements inside, and nothing of the expressions: no import is there."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, part, ()):
            yield child
            yield from _list_statements(child)


def test_every_module_has_a_layer() -> None:
    assert {name_layer(path) for path in list_files()} <= set(ALLOWED)


def test_no_layer_imports_itself_in_a_circle() -> None:
    order: list[str] = []
    left = dict(ALLOWED)
    while left:
        free = [n for n, needs in left.items() if not needs - {n} - set(order)]
        assert free, f"a circle among {sorted(left)}"
        order += free
        for name in free:
            del left[name]


@pytest.mark.parametrize("layer", sorted(ALLOWED))
def test_imports_point_downwards(layer: str) -> None:
    files = [path for path in list_files() if name_layer(path) == layer]
    assert files
    for path, module in ((p, m) for p in files for m in list_imports(p)):
        top, _, rest = module.partition(".")
        if top == "distbench" and rest:
            target = find_layer(rest)
            allowed = target == layer or target in ALLOWED[layer]
            assert allowed, f"{path} imports {module}"
        if layer.partition(".")[0] != "worker":
            assert top not in HEAVY, f"{path} imports {module}; only worker may"


@pytest.mark.parametrize("layer", ["compare", "diagnose", "report"])
def test_judging_and_reporting_start_no_process(layer: str) -> None:
    forbidden = {"subprocess", "multiprocessing", "socket", "psutil", "threading"}
    for path in (PACKAGE / layer).rglob("*.py"):
        tops = {module.partition(".")[0] for module in list_imports(path)}
        assert not tops & forbidden, path


# Statement by statement, and what must not be loaded after it. A process takes a group
# in turn, so what a statement may not load, those before it may not either.
_LIGHT = {
    "import distbench": (*HEAVY, "numpy", "rich", "psutil", "typer"),
    "import distbench.pytest_plugin": (*HEAVY, "numpy", "rich", "psutil"),
    (
        "import sys; sys.argv = ['distbench', '--help']\n"
        "from distbench.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass"
    ): (*HEAVY, "numpy", "rich", "psutil"),
}
_JUDGING = {
    # The interface is functions whatever was imported first: a submodule of the same
    # name would take a function's place.
    (
        "import distbench.api, distbench.call, distbench.cli.check, distbench\n"
        "assert all(callable(getattr(distbench, name)) for name in distbench.__all__)"
    ): HEAVY,
    "import distbench.checking.checker, distbench.api, distbench.report.table": HEAVY,
    "import distbench.faults, distbench.unusual, distbench.selftest.run": HEAVY,
}


@pytest.mark.parametrize("group", [_LIGHT, _JUDGING], ids=["light", "judging"])
def test_importing_stays_cheap(group: dict[str, tuple[str, ...]]) -> None:
    code = "\nimport sys; print('\\nloaded:', *sys.modules)\n".join([*group, ""])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    lines = [x for x in done.stdout.splitlines() if x.startswith("loaded: ")]
    for (statement, forbidden), line in zip(group.items(), lines, strict=True):
        assert not set(line.split()) & set(forbidden), statement
