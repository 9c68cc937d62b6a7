"""Where reports go: a place is tried before, and written in one go."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from distbench.errors import BadInputError, ClusterError
from distbench.report.descriptors import find_descriptor
from distbench.report.files import check_folder, check_place, set_aside, write_report
from distbench.report.pipes import hold_pipe


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
        ("x" * 300, "cannot be written: file ?name too long"),
        ("circle", "cannot be written: .*(levels of symbolic links|symlink loop)"),
    ],
    ids=["folder", "nowhere", "long", "longer", "circle"],
)
def test_a_place_that_cannot_be_written_is_refused(
    tmp_path: Path, name: str, message: str
) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(BadInputError, match=message):
        check_place(tmp_path / name)


def test_a_folder_with_a_name_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="file name too long"):
        check_folder(tmp_path / ("x" * 300))


@pytest.mark.parametrize("leads_to", ["board", "nowhere"])
def test_a_folder_that_is_a_link_to_nothing_is_refused(
    tmp_path: Path, leads_to: str
) -> None:
    (tmp_path / "board").symlink_to(tmp_path / leads_to)
    with pytest.raises(BadInputError, match="board"):
        check_folder(tmp_path / "board")


def test_a_report_in_a_circle_of_links_cannot_be_written(tmp_path: Path) -> None:
    """As one that comes into being while the check runs."""
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(ClusterError, match="could not be written"):
        write_report(tmp_path / "circle" / "x.json", "text")


def test_a_link_to_a_report_stays_one(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    kept, link = tmp_path / "kept" / "verdict.json", tmp_path / "latest.json"
    kept.write_text("old")
    link.symlink_to(kept)
    check_place(link)
    with set_aside([link]):
        assert not kept.exists()
        write_report(link, "new")
    assert kept.read_text() == "new"
    assert link.is_symlink()
    assert [*kept.parent.iterdir()] == [kept]


@pytest.mark.skipif(sys.platform != "linux", reason="has no folder of the kernel's")
def test_a_folder_that_takes_no_files_is_found_before_the_check() -> None:
    """Not even from root, whom permissions do not stop."""
    with pytest.raises(
        BadInputError, match=r"written: the folder '/proc' takes no new"
    ):
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


def test_a_pipe_that_nobody_reads_is_refused(tmp_path: Path) -> None:
    os.mkfifo(place := tmp_path / "pipe")
    with pytest.raises(BadInputError, match="is a pipe that nobody reads"):
        hold_pipe(place, reader_s=0)


def test_who_reads_a_pipe_gets_the_report_and_no_end_before_it(tmp_path: Path) -> None:
    os.mkfifo(place := tmp_path / "pipe")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(place.read_text()))
    reader.start()
    check_place(place)
    check_place(place)
    text = "x" * (1 << 17)
    write_report(place, text)
    reader.join()
    assert read == [text]


def test_a_reader_that_has_gone_is_told_when_the_report_is_written(
    tmp_path: Path,
) -> None:
    os.mkfifo(place := tmp_path / "pipe")
    reader = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
    check_place(place)
    os.close(reader)
    with pytest.raises(ClusterError, match="could not be written"):
        write_report(place, "text")


@pytest.mark.parametrize("name", ["/dev/null", "/dev/stdout", "link"])
@pytest.mark.parametrize("is_file", [True, False], ids=["file", "pipe"])
def test_a_device_takes_reports(tmp_path: Path, name: str, is_file: bool) -> None:
    """Standard output is no file of its own, also where it goes to one."""
    link = tmp_path / "link"
    link.symlink_to("/proc/self/fd/1")
    place = tmp_path / name
    code = (
        "import sys; from pathlib import Path\n"
        "from distbench.report.earlier import VERDICT, check_report\n"
        "from distbench.report.files import set_aside, write_report\n"
        "place = Path(sys.argv[1]); print('before')\n"
        "check_report(place, VERDICT, {})\n"
        "with set_aside([place]): write_report(place, 'text\\n')\n"
        "print('after')\n"
    )
    command = [sys.executable, "-c", code, str(place)]
    if is_file:
        with (tmp_path / "out").open("w") as out:
            subprocess.run(command, stdout=out, check=True)
        text = (tmp_path / "out").read_text()
    else:
        text = subprocess.check_output(command, text=True)
    middle = [] if name == "/dev/null" else ["text"]
    assert text.split() == ["before", *middle, "after"]
    assert link.is_symlink()
    assert Path("/dev/stdout").is_symlink()
    assert {path.name for path in tmp_path.iterdir()} <= {"link", "out"}


def test_descriptors_are_known_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    assert find_descriptor(Path("/dev/stderr")) == 2
    assert find_descriptor(Path("/dev/fd/63")) == 63
    assert find_descriptor(Path(f"/proc/{os.getpid()}/fd/5")) == 5
    for path in (Path("/dev/null"), tmp_path / "circle", tmp_path / "x.json"):
        assert find_descriptor(path) is None


@pytest.mark.parametrize("is_new", [True, False])
def test_an_earlier_report_comes_back_only_where_there_is_no_new_one(
    tmp_path: Path, is_new: bool
) -> None:
    """Another check may have written one meanwhile."""
    path = tmp_path / "v.json"
    path.write_text("old")

    def check() -> None:
        with set_aside([path]):
            assert not path.exists()
            if is_new:
                path.write_text("new")
            raise BadInputError("no such option")

    with pytest.raises(BadInputError):
        check()
    assert path.read_text() == ("new" if is_new else "old")
    assert list(tmp_path.iterdir()) == [path]
