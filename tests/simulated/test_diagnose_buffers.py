"""Pieces of one buffer of all gradients that are cut at wrong places."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from gradient_values import add_up, clip_norm, to_array
from planted_case import check_passed
from training_simulator import BIAS, TRAINED, Fault, observe

from distbench.compare.arrays.measure import BITWISE
from distbench.compare.arrays.pair import Pair
from distbench.compare.inside.pieces import cut_piece, find_start, measure_move
from distbench.diagnose.hypotheses import buffers
from distbench.diagnose.judge import judge
from distbench.trace import TraceKey, Value

Gradients = dict[str, Value]
BUFFER = np.array([0.5, -3.0, 2.0, 0.0, 1.0, -0.25])


def cut_after(
    gradients: Gradients, shift: Callable[[np.ndarray], np.ndarray]
) -> Gradients:
    """The gradients, cut out of one buffer after it was changed."""
    dense = {path: to_array(gradients[path]) for path in TRAINED}
    flat = shift(np.concatenate([value.ravel() for value in dense.values()]))
    cut = {}
    for path, value in dense.items():
        piece, flat = flat[: value.size], flat[value.size :]
        cut[path] = piece.reshape(value.shape)
    return cut


def sum_then(change: Callable[[Gradients], Gradients]) -> Fault:
    """A cluster that changes its sums, as one device does its own gradients."""
    return Fault(reduce=lambda ls, step: [change(add_up(ls)) for _ in ls])


def begin_one_late(flat: np.ndarray) -> np.ndarray:
    return np.concatenate([flat[:1], flat[:-1]])


def turn(flat: np.ndarray) -> np.ndarray:
    return np.roll(flat, 3)


@pytest.mark.parametrize("shift", [begin_one_late, turn], ids=["late", "turned"])
@pytest.mark.parametrize("replicas", [1, 3])
def test_pieces_that_one_device_too_cuts_at_wrong_places_are_told(shift, replicas):
    """Whoever is the measure, no rule moves gradients from element to element."""

    def cut(gradients):
        return cut_after(gradients, shift)

    judgement = judge(
        observe(sum_then(cut), alone=cut, replicas=replicas, sparse=False, steps=2)
    )
    first = judgement.findings[0]
    assert (first.code, first.phase, first.step) == (
        "wrong-pairing",
        "reduced_gradient",
        0,
    )
    assert first.variables == tuple(TRAINED)
    assert first.replicas == tuple(range(replicas))
    assert "on one device as well" in first.explanation


@pytest.mark.parametrize(
    "change",
    [
        lambda g: {path: clip_norm(to_array(v), 0.01) for path, v in g.items()},
        lambda g: {path: np.clip(to_array(v), -0.01, 0.01) for path, v in g.items()},
        lambda g: {path: -to_array(v) for path, v in g.items()},
        lambda g: {
            path: to_array(v)[::-1] if path == BIAS else v for path, v in g.items()
        },
    ],
    ids=["norm", "elements", "ascent", "few-numbers"],
)
def test_other_changes_are_none(change):
    evidence = observe(sum_then(change), alone=change, sparse=False)
    assert "wrong-pairing" not in [f.code for f in judge(evidence).findings]


def test_a_right_buffer_passes():
    def cut(gradients):
        return cut_after(gradients, np.copy)

    check_passed(judge(observe(sum_then(cut), alone=cut, sparse=False)))


@pytest.mark.parametrize(("start", "size"), [(0, 6), (1, 3), (4, 4)])
def test_a_piece_is_found_in_a_buffer_without_an_end(start, size):
    piece = cut_piece(BUFFER, start, size)
    assert find_start(BUFFER, piece, 1e-9) == start
    assert find_start(BUFFER, piece + 7.0, 1e-9) is None


def test_a_number_that_is_nowhere_hides_no_place():
    piece = cut_piece(BUFFER, 1, 4)
    piece[1] = 99.0
    assert find_start(BUFFER, piece, 1e-9) == 1


def test_a_move_goes_the_shorter_way_round():
    assert [measure_move(BUFFER, start, 0) for start in range(6)] == [
        0,
        1,
        2,
        -3,
        -2,
        -1,
    ]


SUMS = {"first": BUFFER[:1], "second": BUFFER[1:4], "third": BUFFER[4:]}


def make_case(variable: str, observed: np.ndarray, expected: np.ndarray) -> Pair:
    return Pair(
        key=TraceKey(step=0, phase="reduced_gradient", variable=variable),
        relation="follows",
        against="",
        observed=observed,
        expected=expected,
        margin=BITWISE,
        dtype="float32",
    )


@pytest.mark.parametrize(("start", "is_told"), [(1, False), (3, True)])
def test_a_sum_that_stands_in_its_own_place_is_cut_from_no_other(start, is_told):
    """A scale that nobody undoes leaves the plain sum of what the replicas had."""
    observed = BUFFER[start : start + 3]
    case = make_case("second", observed, observed / 1024)
    told = buffers.cut_elsewhere(SUMS, case, order=list(SUMS), replicas=2)
    assert (told is not None) is is_told
    if told is not None:
        np.testing.assert_array_equal(told[0], observed)
        assert told[1] == "'second' +2"


@pytest.mark.parametrize(
    ("filled", "is_told"),
    [(["first", "third", "second"], True), (["first", "second", "third"], False)],
)
def test_an_order_that_leaves_a_sum_in_its_own_place_says_nothing_of_it(
    filled, is_told
):
    """One that a mask should have left out is wrong, and stands where it should."""
    case = make_case("second", SUMS["second"], np.zeros(3))
    told = buffers.cut_in_order(SUMS, case, filled=filled, cut=list(SUMS))
    assert (told is not None) is is_told
    if told is not None:
        np.testing.assert_array_equal(told[0], BUFFER[[4, 5, 1]])
