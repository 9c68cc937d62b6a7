"""What is told of a lack of the machine's, whoever meets it."""

from __future__ import annotations

import builtins
import errno

import pytest

from distbench.errors import (
    count_things,
    find_advice,
    list_members,
    make_unknown_name_error,
    read_message,
)


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


@pytest.mark.parametrize(
    ("received", "section", "told"),
    [
        (
            "nope",
            "",
            "one of layer0/kernel, layer1/kernel, layer2/kernel, layer3/kernel, "
            "16 others.",
        ),
        ("nope", "codes", "one of 20 names (see 'distbench list codes')."),
        ("layer7/kernle", "", "one of layer7/kernel, "),
    ],
)
def test_of_many_names_some_are_told(received: str, section: str, told: str) -> None:
    names = [f"layer{number}/kernel" for number in range(20)]
    error = make_unknown_name_error("Variable", received, names, section=section)
    assert told in str(error)


def test_a_group_of_exceptions_tells_what_it_holds() -> None:
    group = getattr(builtins, "ExceptionGroup", None)
    if group is None:
        pytest.skip("Python 3.10 has no groups")
    inner = group("inner", [KeyError("b"), OSError()])
    outer = group("outer", [ValueError("a"), inner])
    assert list_members(outer) == [outer.exceptions[0], *inner.exceptions]
    told = "outer (2 sub-exceptions): ValueError: a; KeyError: 'b'; OSError"
    assert read_message(outer) == told
    assert list_members(ValueError("a")) == []
