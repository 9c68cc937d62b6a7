"""Settings of optimizers that are others on a cluster than on one device."""

from __future__ import annotations

import math

import pytest

from distbench.trace import Trace
from distbench.trace.settings import list_other_settings, note_settings

ONE = {"0.momentum": 0.9, "0.clipnorm": None, "1.nesterov": False}


def make_trace(*noted: tuple[int, dict], replicas: int = 4) -> Trace:
    notes: dict[str, object] = {}
    for first, settings in noted:
        notes |= note_settings(settings, first)
    return Trace(
        name="run", replicas=replicas, shards=(), variables=(), values={}, notes=notes
    )


def find(*noted: tuple[int, dict], due: dict = ONE) -> list[tuple]:
    reference = make_trace((0, due), replicas=1)
    found = list_other_settings(make_trace(*noted), reference)
    return [(one.path, one.seen, one.due, one.replicas) for one in found]


def test_what_all_replicas_have_otherwise_is_listed() -> None:
    found = find((0, {**ONE, "0.momentum": 0.81, "1.nesterov": True}))
    everywhere = (0, 1, 2, 3)
    assert found == [
        ("0.momentum", 0.81, 0.9, everywhere),
        ("1.nesterov", True, False, everywhere),
    ]


def test_it_is_told_which_workers_replicas_have_it() -> None:
    other = {**ONE, "0.clipnorm": 1.0}
    assert find((0, ONE), (2, other)) == [("0.clipnorm", 1.0, None, (2, 3))]
    assert find((2, other), (0, other)) == [("0.clipnorm", 1.0, None, (0, 1, 2, 3))]


@pytest.mark.parametrize(
    "settings",
    [ONE, {**ONE, "0.momentum": 0.9 * 3 / 3 + 1e-12}, {**ONE, "1.nesterov": 0}],
    ids=["same", "rounded", "alike"],
)
def test_what_is_the_same_is_not(settings: dict) -> None:
    assert find((0, settings)) == []


def test_where_objects_lie_in_memory_is_no_setting() -> None:
    due, seen, other = (f"<function {p[0]} at 0x7f{p[1]}>" for p in ("a1", "ab", "bc"))
    assert find((0, {"0.rule": seen}), due={"0.rule": due}) == []
    ((path, *_),) = find((0, {"0.rule": other}), due={"0.rule": due})
    assert path == "0.rule"


def test_a_text_may_have_what_looks_like_an_address() -> None:
    ((path, *_),) = find((0, {"0.mesh": "10x2"}), due={"0.mesh": "10x4"})
    assert path == "0.mesh"


def test_numbers_that_are_none_are_the_same() -> None:
    assert find((0, {"0.limit": math.nan}), due={"0.limit": math.nan}) == []


def test_what_an_optimizer_does_not_tell_is_none() -> None:
    found = find((0, {"0.momentum": 0.9, "1.nesterov": False, "0.clipvalue": 0.5}))
    assert found == [("0.clipvalue", 0.5, None, (0, 1, 2, 3))]


def test_an_optimizer_that_tells_nothing_is_left_out() -> None:
    assert find((0, {"0.momentum": 0.9})) == []
    assert find() == []
    assert find((0, ONE), due={}) == []
