"""In which orders steps in flight may have read and written."""

from __future__ import annotations

import numpy as np
import pytest

from distbench.worker.in_flight.orders import (
    draw_order,
    list_as_seen,
    list_extremes,
    split_updates,
)


@pytest.mark.parametrize("seed", range(20))
def test_an_order_never_contradicts_what_a_step_saw(seed: int) -> None:
    begun, ended = [0, 0, 1, 2, 0], [0, 1, 3, 2, 4]
    rng = np.random.default_rng(seed)
    events = list(draw_order(begun, ended, rng))
    places = {event: place for place, event in enumerate(events)}
    assert len(places) == 10
    for step in range(5):
        assert places["read", step] < places["update", step]
        for other in range(5):
            if ended[other] < begun[step]:
                assert places["update", other] < places["read", step]


@pytest.mark.parametrize("seed", range(20))
def test_who_began_after_a_step_had_ended_saw_all_of_it(seed: int) -> None:
    begun, ended = [0, 0, 1, 2, 0], [0, 1, 3, 2, 4]
    rng = np.random.default_rng(seed)
    whole = list(draw_order(begun, ended, rng))
    events = split_updates(whole, begun, ended, rng)
    assert [event for event in events if event[0] != "rest"] == whole
    places = {event: place for place, event in enumerate(events)}
    late = [step for step in range(5) if ("rest", step) in places]
    assert len(places) == 10 + len(late)
    for step in late:
        assert places["update", step] + 1 < places["rest", step]
        for other in range(5):
            if ended[step] < begun[other]:
                assert places["rest", step] < places["read", other]


@pytest.mark.parametrize("seed", range(20))
def test_each_step_comes_as_late_and_as_early_as_it_may(seed: int) -> None:
    # The first step ends last: its worker stands still while the other runs the rest.
    begun, ended = [0, 0, 1, 2, 3], [4, 0, 1, 2, 3]
    rng = np.random.default_rng(seed)
    ends = []
    for put_off in list_extremes(begun, ended, [0, 3]):
        events = list(draw_order(begun, ended, rng, put_off))
        if ("read", 0) in put_off and len(put_off) == 2:
            assert events[-2:] == [("read", 0), ("update", 0)]
        ends.append([place for kind, place in events if kind == "update"])
    late, latest, early, third_late, third_latest, third_early = ends
    assert late[-1] == latest[-1] == 0
    assert early[0] == 0
    # What began after a step had ended comes after it, however late that is put.
    assert third_late[-2:] == third_latest[-2:] == [3, 4]
    assert third_early[:3] == [1, 2, 3]


def test_steps_read_as_they_begin_or_one_of_them_later() -> None:
    """The first two begin together, and the last one as the first has ended."""
    orders = list(list_as_seen(begun=[3, 3, 4], ended=[3, 5, 4]))
    first, second, third = ([("read", p), ("update", p)] for p in range(3))
    assert orders == [
        [("read", 0), ("read", 1), ("update", 0), *third, ("update", 1)],
        [*first, ("read", 1), *third, ("update", 1)],
        [*first, *third, *second],
    ]


def test_all_orders_of_two_steps_are_drawn() -> None:
    rng = np.random.default_rng(1)
    drawn = {tuple(draw_order([0, 0], [0, 1], rng)) for _ in range(200)}
    assert len(drawn) == 6
