"""What is told of a lack of the machine's, whoever meets it."""

from __future__ import annotations

import errno

import pytest

from distbench.errors import count_things, find_advice


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 steps"), (1, "1 step"), (2, "2 steps")]
)
def test_one_thing_is_told_from_several(number: int, words: str) -> None:
    assert count_things(number, "step") == words


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "ulimit -n"),
        (MemoryError("Unable to allocate 3 TiB"), "ulimit -v"),
        (RuntimeError("can't start new thread"), "ulimit -u"),
    ],
    ids=["files", "memory", "threads"],
)
def test_what_a_machine_lacks_comes_with_advice(error: Exception, advice: str) -> None:
    assert advice in find_advice(error)


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "No such file"),
        BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"),
        RuntimeError("can't start"),
        ValueError("can't start new thread"),
    ],
    ids=["file", "waits", "words", "type"],
)
def test_other_failures_are_none_of_the_machines(error: Exception) -> None:
    assert not find_advice(error)
