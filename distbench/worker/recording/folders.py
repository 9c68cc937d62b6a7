"""The folder of a recorded job: made when it begins, taken away if it stays empty."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from distbench.errors import BadInputError, describe_unwritable


def make_folders(folder: Path) -> list[Path]:
    """Make a folder and those that it is in; returns what was made, innermost first.

    Raises:
        BadInputError: It cannot be made.
    """
    lacking = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        remove_empty(lacking)
        why = describe_unwritable(error, folder)
        raise BadInputError(
            f"distbench.record: '{folder}' cannot be made: {why}. Expected: the name "
            "of a folder that takes files."
        ) from error
    return lacking


def remove_empty(folders: Sequence[Path]) -> None:
    """Take folders away, innermost first, up to one that holds something."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()
