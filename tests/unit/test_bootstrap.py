"""What a process does before its task runs."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from distbench.launch.bootstrap import import_all
from distbench.launch.forkserver import find_unfitness


@pytest.fixture
def importing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to import from, and the collector on in the end."""
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    gc.enable()


def test_nothing_is_collected_while_modules_are_imported(importing: Path) -> None:
    code = "import gc\nwas_on = gc.isenabled()\nkept = [[] for _ in range(100)]\n"
    (importing / "imported_with_gc.py").write_text(code)
    frozen = gc.get_freeze_count()
    import_all(["imported_with_gc"])
    import imported_with_gc  # type: ignore[import-not-found]  # written above

    assert not imported_with_gc.was_on
    assert gc.isenabled()
    assert gc.get_freeze_count() >= frozen + 100


def test_garbage_is_looked_for_after_an_import_that_fails(importing: Path) -> None:
    (importing / "fails_with_gc.py").write_text("raise RuntimeError('broken')\n")
    with pytest.raises(RuntimeError, match="broken"):
        import_all(["fails_with_gc"])
    assert gc.isenabled()


def test_a_thread_that_ends_as_it_is_looked_at_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = Path("/proc/self/task/999999999")
    me = Path(f"/proc/self/task/{os.getpid()}")
    monkeypatch.setattr(Path, "iterdir", lambda _: iter((gone, me)))
    assert find_unfitness() == ""
