"""Whether every example of an epoch reaches the replicas once."""

from __future__ import annotations

import pytest

from distbench.diagnose.examples import count_examples
from distbench.evidence import Examples

EPOCH = (("a", "b", "c"), ("d", "e", "f"))


def find(
    *seen: tuple[tuple[str, ...], ...], is_whole: bool = True
) -> list[tuple[str, float, tuple[int, ...]]]:
    examples = Examples(expected=EPOCH, seen=seen, is_whole=is_whole)
    return [(f.code, f.ratio or 0.0, f.replicas) for f in count_examples(examples)]


@pytest.mark.parametrize(
    "seen",
    [
        ((("a", "b"), ("d", "e")), (("c",), ("f",))),
        ((("a", "c"), ("e", "b")), (("d",), ("f",))),  # in another order
        ((("a", "b", "c"),), (("d", "e", "x"),)),  # another remainder is dropped
        ((("a", "b", "c", "d", "e", "f"),), ((),)),
    ],
)
def test_an_epoch_in_any_order_is_right(seen: tuple) -> None:
    assert not find(*seen)


def test_an_example_that_a_data_set_holds_twice_may_come_twice() -> None:
    examples = Examples(
        expected=(("a", "a"),), seen=((("a",),), (("a",),)), is_whole=True
    )
    assert not list(count_examples(examples))


def test_what_every_replica_reads_is_repeated() -> None:
    assert find(EPOCH, EPOCH) == [("examples-repeated", 2.0, (0, 1))]


def test_replicas_that_hold_no_repeated_example_are_not_named() -> None:
    found = find((("a", "b"),), (("c", "d"),), (("e", "f", "a"),))
    assert found == [("examples-repeated", 7 / 6, (0, 2))]


def test_what_no_replica_reads_is_missed() -> None:
    assert find((("a", "b"),), (("c", "d"),)) == [("examples-missed", 4 / 6, ())]


def test_both_can_be() -> None:
    found = find((("a", "b"),), (("a", "b"),))
    assert [code for code, _, _ in found] == ["examples-repeated", "examples-missed"]


def test_what_came_round_twice_is_all_that_an_endless_data_set_gives() -> None:
    twice = Examples(
        expected=(*EPOCH, *EPOCH),
        seen=((("a", "b"), ("a", "b")), (("c", "d"), ("c", "d"))),
        is_whole=False,
    )
    (found,) = count_examples(twice)
    assert (found.code, found.ratio) == ("examples-missed", 4 / 6)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ((EPOCH, EPOCH), [("examples-repeated", 2.0, (0, 1))]),
        ((EPOCH, EPOCH[::-1]), []),
        ((EPOCH,), []),
        (((("a", "a"),), (("a", "a"),)), []),  # all examples are alike
    ],
)
def test_of_an_endless_data_set_replicas_must_not_read_the_same(
    seen: tuple, expected: list
) -> None:
    assert find(*seen, is_whole=False) == expected
