"""Files of subjects, for tests of what loads them."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def keep_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a test leave no module, no `sys.path` and no temporary file behind."""
    path, modules, words = list(sys.path), dict(sys.modules), sys.argv
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield
    sys.path[:], sys.argv = path, words
    for name in set(sys.modules) - set(modules):
        del sys.modules[name]


def write(folder: Path, text: str, name: str = "train.py") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
