"""Imports point one way, and what starts often stays cheap."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from layers import ALLOWED

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "distbench"
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
    unused = set(ALLOWED[layer])
    for path, module in ((p, m) for p in files for m in list_imports(p)):
        top, _, rest = module.partition(".")
        if top == "distbench" and rest:
            target = find_layer(rest)
            allowed = target == layer or target in ALLOWED[layer]
            assert allowed, f"{path} imports {module}"
            unused.discard(target)
        if layer.partition(".")[0] != "worker":
            assert top not in HEAVY, f"{path} imports {module}; only worker may"
    assert not unused, f"{layer} imports no {', '.join(unused)}: say so in layers.py"


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
    "import distbench.checking.check, distbench.api, distbench.report.table": HEAVY,
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
