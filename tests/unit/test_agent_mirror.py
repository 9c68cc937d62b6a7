"""What one side of a mirrored folder wrote, the other gets, and only that."""

from __future__ import annotations

from pathlib import Path

import pytest

from distbench.agent.mirror import Mirror


def make_pair(tmp_path: Path) -> tuple[Path, Mirror, Path, Mirror]:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    return here, Mirror(here), there, Mirror(there)


def send(source: Mirror, target: Mirror, *names: str) -> list[str]:
    sent = list(source.list_news(names or ("",)))
    for name, content in sent:
        target.write(name, content)
    return [name for name, _ in sent]


def test_a_file_travels_once_and_again_when_it_was_replaced(tmp_path: Path) -> None:
    here, ours, there, theirs = make_pair(tmp_path)
    (here / "a").mkdir()
    (here / "a" / "trace.npz").write_bytes(b"1")
    assert send(ours, theirs) == ["a/", "a/trace.npz"]
    assert (there / "a" / "trace.npz").read_bytes() == b"1"
    assert send(ours, theirs) == []
    (here / "other").write_bytes(b"2")
    (here / "other").replace(here / "a" / "trace.npz")
    assert send(ours, theirs) == ["a/trace.npz"]
    assert (there / "a" / "trace.npz").read_bytes() == b"2"


def test_what_came_does_not_go_back_until_it_is_written_again(tmp_path: Path) -> None:
    here, ours, there, theirs = make_pair(tmp_path)
    (here / "file").write_bytes(b"1")
    send(ours, theirs)
    assert send(theirs, ours) == []
    (there / "file").write_bytes(b"22")
    assert send(theirs, ours) == ["file"]
    assert (here / "file").read_bytes() == b"22"


def test_only_what_is_named_travels_and_never_the_groups_own(tmp_path: Path) -> None:
    here, ours, _, theirs = make_pair(tmp_path)
    for name in ("a/1", "b/2", "group-1/logs/worker-0.log"):
        (here / name).parent.mkdir(parents=True)
        (here / name).write_bytes(b"x")
    assert send(ours, theirs, "b", "missing") == ["b/", "b/2"]
    assert send(ours, theirs, "a/1", "group-1", "group-1/logs") == ["a/1"]
    assert send(ours, theirs) == ["a/"]


def test_a_folder_travels_before_anything_is_in_it(tmp_path: Path) -> None:
    here, ours, there, theirs = make_pair(tmp_path)
    (here / "a" / "empty").mkdir(parents=True)
    assert send(ours, theirs, "a") == ["a/", "a/empty/"]
    assert (there / "a" / "empty").is_dir()
    assert send(ours, theirs, "a") == send(theirs, ours) == []


def test_of_a_folder_that_ends_in_a_slash_nothing_inside_travels(
    tmp_path: Path,
) -> None:
    here, ours, there, theirs = make_pair(tmp_path)
    (here / "a").mkdir()
    for name in ("wanted", "other"):
        (here / "a" / name).write_bytes(b"1")
    assert send(ours, theirs, "a/", "a/wanted") == ["a/", "a/wanted"]
    assert [path.name for path in (there / "a").iterdir()] == ["wanted"]


@pytest.mark.parametrize("name", ["../out", "a/../../out", "/out", "", "."])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "inside").mkdir()
    with pytest.raises(ValueError, match="outside of the run's folder"):
        Mirror(tmp_path / "inside").write(name, b"x")
    assert list(tmp_path.glob("out*")) == []
