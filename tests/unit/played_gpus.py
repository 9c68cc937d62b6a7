"""GPUs that this machine does not have: who lists them, and which of them are shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from distbench.gpus import VISIBLE


def play_driver(folder: Path, script: str) -> None:
    """Put a program into a folder that answers in nvidia-smi's place."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def show_gpus(
    monkeypatch: pytest.MonkeyPatch, search: str, visible: str | None
) -> None:
    """Have programs be found in `search` alone, and CUDA show some GPUs, or all."""
    monkeypatch.setenv("PATH", search)
    monkeypatch.delenv(VISIBLE, raising=False)
    if visible is not None:
        monkeypatch.setenv(VISIBLE, visible)
