"""Write docs/upstream-findings.md: run every file of docs/upstream and keep its words.

Each of these files shows one fault of TensorFlow or Keras with nothing else installed;
its docstring says where the fault lies and what is due.

    .venv/bin/python scripts/write_upstream.py          # minutes
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from measured import ROOT

FOLDER = ROOT / "docs" / "upstream"
PAGE = ROOT / "docs" / "upstream-findings.md"
_TIMEOUT_S = 240
_HEAD = """\
<!-- Written by scripts/write_upstream.py from the files in docs/upstream. -->

# Faults of TensorFlow and Keras

What the bench, or work on it, found in the framework itself. Each entry can be run
alone, and was: below it is what it printed under
{versions}.
A finding that a stock optimizer shows as well has the origin `framework` in a verdict.
"""


def main() -> None:
    """Run all files and write the page."""
    names = ("tensorflow", "tf-keras", "keras")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    parts = [_HEAD.format(versions=versions)]
    for path in sorted(FOLDER.glob("*.py")):
        parts.append("\n".join(write_entry(path, run_file(path))))
    PAGE.write_text("\n".join(parts), "utf-8")


def run_file(path: Path) -> str:
    """What a file prints.

    Raises:
        subprocess.CalledProcessError: It does not get to its end.
    """
    done = subprocess.run(
        [sys.executable, str(path)],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=_TIMEOUT_S,
    )
    return done.stdout


def write_entry(path: Path, printed: str) -> Iterator[str]:
    """The lines of one entry."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    title, _, rest = text.partition("\n\n")
    yield f"## {title.rstrip('.')}"
    yield ""
    # Without brackets only GitHub makes links of addresses, and nobody follows them.
    yield re.sub(r"https://[^\s)]+", r"<\g<0>>", rest)
    yield ""
    yield f"[{path.name}](upstream/{path.name}) prints:"
    yield ""
    yield f"<!-- printed by: python docs/upstream/{path.name} -->"
    yield "```text"
    yield printed.rstrip()
    yield "```"
    yield ""


if __name__ == "__main__":
    main()
