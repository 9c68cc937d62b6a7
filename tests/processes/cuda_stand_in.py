"""A stand-in for the CUDA driver that tells who initialises it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

REPORT = "CUDA_STAND_IN_REPORT"
_SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
static int ready;
int cuInit(unsigned flags) {
  FILE *report = fopen(getenv("CUDA_STAND_IN_REPORT"), "a");
  fprintf(report, "cuInit\n");
  fclose(report);
  ready = 1;
  return flags;
}
int cuDeviceGetCount(int *count) { *count = 0; return ready ? 0 : 3; }
"""


def find_lack() -> str:
    """What this machine lacks to compile one, as need and have; empty for nothing."""
    return "" if shutil.which("cc") else "need a C compiler (cc), have none"


def compile_stand_in(folder: Path) -> dict[str, str]:
    """Compile one; returns the variables with which a process finds it.

    It adds a line to a file each time that it is initialised.
    """
    library = folder / "libcuda.so.1"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)],
        input=_SOURCE,
        text=True,
        check=True,
        timeout=60,
    )
    known = os.environ.get("LD_LIBRARY_PATH", "")
    return {
        "LD_LIBRARY_PATH": f"{folder}:{known}".rstrip(":"),
        REPORT: str(folder / "report"),
    }


def was_initialised(variables: dict[str, str]) -> bool:
    """Whether any process has initialised it."""
    return Path(variables[REPORT]).exists()
