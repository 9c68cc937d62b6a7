"""Runs the code blocks of a page, as its reader would, in a folder of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pages import ROOT, Block, is_shown, name_page, read_blocks, read_commands

_TIMEOUT_S = 300.0
_LINKED = ("docs", "scenarios", "scripts", "tests")
"""Folders of the repository that commands name."""

_PROMPT = re.compile(r"^\(Pdb\) (.*)$", re.MULTILINE)
_TYPED_IN = "(Pdb) "


class PageError(AssertionError):
    """A block did something else than its page says."""


def run_page(page: Path, folder: Path) -> int:
    """Run all blocks of a page in turn.

    Args:
        page: The page.
        folder: An empty folder, in which the blocks run.

    Returns:
        The number of blocks that ran.

    Raises:
        PageError: A block failed, or printed something else.
    """
    for name in _LINKED:
        (folder / name).symlink_to(ROOT / name, target_is_directory=True)
    return sum(_run_block(block, page, folder) for block in read_blocks(page))


def _run_block(block: Block, page: Path, folder: Path) -> bool:
    place = f"{name_page(page)}:{block.line}"
    for name, command in block.marks:
        if name == "first":
            _run_quietly(command, place, folder)
    printed_by = block.find_mark("printed by")
    file = block.find_mark("file")
    elsewhere = any(map(block.find_mark, ("not run", "part of", "fragment")))
    if file is not None:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(block.text, "utf-8")
    elif printed_by is not None:
        _compare(printed_by, block.text, place, folder)
    elif elsewhere:
        return False
    elif block.language == "console":
        for command in read_commands(block):
            _compare(command.typed, command.shown, place, folder)
    elif block.language == "python":
        script = folder / f"block_{block.line}.py"
        script.write_text(block.text, "utf-8")
        _run_quietly(f"python {script.name}", place, folder)
    else:
        return False
    return True


def _run_quietly(command: str, place: str, folder: Path) -> None:
    done = _run(command, folder)
    if done.returncode != 0:
        raise PageError(f"{place}: {_describe(command, done)}")


def _compare(command: str, shown: str, place: str, folder: Path) -> None:
    """Run a command; without anything shown it has to succeed.

    A finding ends with 1, which is nothing that a page has to say.
    """
    typed = _PROMPT.findall(shown)
    done = _run(command, folder, "".join(f"{line}\n" for line in typed))
    printed = (done.stdout or done.stderr).replace(str(folder), "/home/me")
    accepted = (0, 1) if shown.strip() else (0,)
    # What was typed at a prompt is not printed where no terminal is.
    expected = _PROMPT.sub(_TYPED_IN, shown) if typed else shown
    is_right = not shown.strip() or is_shown(expected, printed)
    if done.returncode not in accepted or not is_right:
        raise PageError(
            f"{place} shows\n{shown}\nand there came {_describe(command, done)}"
        )


def _run(
    command: str, folder: Path, typed: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=_make_environment(os.environ, folder),
        input=typed,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )


def _make_environment(given: Mapping[str, str], home: Path) -> dict[str, str]:
    """That of a terminal in which this Python's environment was activated."""
    search = [str(Path(sys.executable).parent), given.get("PATH", "")]
    return {
        **{name: value for name, value in given.items() if "PYTEST" not in name},
        "HOME": str(home),
        "PATH": os.pathsep.join(search),
        "VIRTUAL_ENV": sys.prefix,
        "PYTHONPATH": str(ROOT),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
        "NO_COLOR": "1",
    }


def _describe(command: str, done: subprocess.CompletedProcess[str]) -> str:
    return (
        f"exit code {done.returncode} from\n$ {command}\n{done.stdout}\n{done.stderr}"
    )
