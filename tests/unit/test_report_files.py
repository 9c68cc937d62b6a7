"""Where reports go: a place is tried before, and written in one go."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from distbench.errors import BadInputError, ClusterError
from distbench.report.files import check_place, write_report


def test_a_report_replaces_the_old_one_and_leaves_nothing_else(tmp_path: Path) -> None:
    place = tmp_path / "verdict.json"
    for text in ("old", "new \ud800"):
        check_place(place)
        write_report(place, text)
    assert place.read_text() == "new \\ud800"
    assert list(tmp_path.iterdir()) == [place]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (".", "is a folder"),
        ("no/x.json", "there is no folder"),
        ("x" * 253, "cannot be written: file ?name too long"),
    ],
    ids=["folder", "nowhere", "long"],
)
def test_a_place_that_cannot_be_written_is_refused(
    tmp_path: Path, name: str, message: str
) -> None:
    with pytest.raises(BadInputError, match=message):
        check_place(tmp_path / name)


@pytest.mark.skipif(sys.platform != "linux", reason="has no folder of the kernel's")
def test_a_folder_that_takes_no_files_is_found_before_the_check() -> None:
    """Not even from root, whom permissions do not stop."""
    with pytest.raises(BadInputError, match=r"'/proc/x\.json' cannot be written"):
        check_place(Path("/proc/x.json"))


def test_a_full_disk_may_have_room_when_the_report_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "touch", fill)
    check_place(tmp_path / "x.json")


def test_a_machine_that_cannot_write_is_at_fault(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="could not be written"):
        write_report(tmp_path / "gone" / "x.json", "text")


def test_nothing_is_left_of_a_report_that_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill_disk(path: Path, data: bytes) -> None:
        with path.open("wb") as file:
            file.write(data[:1])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fill_disk)
    with pytest.raises(ClusterError, match="could not be written"):
        write_report(tmp_path / "verdict.json", "text")
    assert list(tmp_path.iterdir()) == []
