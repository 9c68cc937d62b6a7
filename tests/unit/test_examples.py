"""Whether every example of an epoch reaches the replicas once."""

from __future__ import annotations

import numpy as np
import pytest

from distbench.diagnose.remarks.examples import count_examples
from distbench.diagnose.remarks.pipelines import describe_pipeline
from distbench.examples import Examples

EPOCH = (("a", "b", "c"), ("d", "e", "f"))


def find(
    *seen: tuple[tuple[str, ...], ...], is_whole: bool = True, apart: bool = False
) -> list[tuple[str, float, tuple[int, ...]]]:
    examples = Examples(expected=EPOCH, seen=seen, is_whole=is_whole, apart=apart)
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


def test_shares_that_overlap_are_one_mistake() -> None:
    """Each is as long as it should be: what comes again is in the place of others."""
    seen = ((("a", "b", "c"),), (("c", "d", "e"),))
    (finding,) = count_examples(Examples(expected=EPOCH, seen=seen, is_whole=True))
    assert (finding.code, finding.ratio) == ("examples-repeated", 1.0)
    assert "1 times an example" in finding.explanation
    assert "in place of as many that are missed" in finding.explanation


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


@pytest.mark.parametrize(
    "seen",
    [
        (EPOCH, EPOCH),
        ((("a", "c"), ("e", "b"), ("d", "f")), EPOCH),  # in orders of their own
        ((("a", "b"), ("d", "e")), (("c", "f"),)),
    ],
    ids=["an-epoch-each", "other-orders", "a-share-each"],
)
def test_workers_apart_read_an_epoch_each_or_share_one(seen: tuple) -> None:
    assert not find(*seen, apart=True)


def test_what_a_worker_apart_reads_twice_or_never_is_told() -> None:
    twice = (*EPOCH, ("a", "b"))
    assert find(EPOCH, twice, apart=True) == [("examples-repeated", 14 / 12, ())]
    less = (("a", "b", "c"), ("d", "e"))
    assert find(EPOCH, less, apart=True) == [("examples-missed", 11 / 12, ())]
    (finding,) = count_examples(
        Examples(expected=EPOCH, seen=(EPOCH, twice), is_whole=True, apart=True)
    )
    assert "workers 1: 2 times" in finding.explanation
    assert "get_current_worker_index()" in finding.explanation


def test_a_share_that_no_worker_apart_reads_is_missed() -> None:
    found = find((("a", "b"),), (("c",), ("f",)), apart=True)
    assert found == [("examples-missed", 4 / 6, ())]


def test_endless_workers_apart_may_read_alike_but_nothing_less() -> None:
    once_more = (*EPOCH, *EPOCH)
    assert not find(once_more, once_more, is_whole=False, apart=True)
    less = (("a", "b"), ("a", "b"))
    found = list(
        count_examples(
            Examples(expected=once_more, seen=(less, less), is_whole=False, apart=True)
        )
    )
    assert [(f.code, f.ratio) for f in found] == [("examples-missed", 2 / 6)]


@pytest.mark.parametrize(
    ("seen", "note"),
    [
        (((("a", "b"),), (("c",), ("d",))), ""),
        (((("a", "b"), ("c",)), (("d", "e"), ("f",))), "together read 4 examples"),
        (((("a",), ("b",)), (("c",), ("d",))), "together read 2 examples"),
    ],
    ids=["same", "more", "less"],
)
def test_another_global_batch_than_that_of_one_device_is_told(
    seen: tuple, note: str
) -> None:
    examples = Examples(expected=EPOCH, seen=seen, is_whole=True)
    assert len(describe_pipeline(examples)) == bool(note)
    assert note in "".join(describe_pipeline(examples))
    lone = Examples(expected=EPOCH[:1], seen=seen, is_whole=True)
    assert not describe_pipeline(lone)


@pytest.mark.parametrize(
    ("seen", "note"),
    [
        ((EPOCH, EPOCH[::-1]), ""),
        (((("a", "b", "c"),), (("d", "e"),)), ""),  # a lone batch is a remainder
        ((EPOCH, (("a", "b"), ("c", "d"), ("e", "f"))), "first batch has 2 examples"),
        (((("a",), ("b",)), (("c", "d"), ("e", "f"))), "has 1 or 2 examples"),
    ],
    ids=["whole", "remainder", "smaller", "several-sizes"],
)
def test_batches_of_workers_apart_are_as_large_as_those_of_one_device(
    seen: tuple, note: str
) -> None:
    apart = Examples(expected=EPOCH, seen=seen, is_whole=True, apart=True)
    assert len(describe_pipeline(apart)) == bool(note)
    assert note in "".join(describe_pipeline(apart))


@pytest.mark.parametrize(
    ("few", "told"), [("ab", True), ("abcd", True), ("abcde", False), ("ax", False)]
)
def test_parts_of_an_endless_data_set_that_come_round_unevenly_are_told(
    few: str, told: bool
) -> None:
    """Parts that overlap are no parts: each replica reads all, say."""
    rest = "uvwxyz" if "x" not in few else "xuvwyz"
    own = tuple((few[n % len(few)],) for n in range(24))
    other = tuple((rest[n % 6], rest[n % 6]) for n in range(24))
    endless = Examples(expected=EPOCH, seen=(own, other), is_whole=False)
    assert len(describe_pipeline(endless)) == told
    if told:
        words = f"replica 0 reads {len(few)} examples over and over where replica 1"
        assert words in describe_pipeline(endless)[0]
    whole = Examples(expected=EPOCH, seen=(own, other), is_whole=True)
    assert "over and over" not in "".join(describe_pipeline(whole))


@pytest.mark.parametrize(
    ("other", "is_told"),
    [
        ((("g", "h"), ("i", "j")), True),
        ((("d", "g"), ("e", "h")), False),  # as many as a remainder may be
    ],
)
def test_parts_that_are_counted_by_a_constant_are_told(
    other: tuple, is_told: bool
) -> None:
    own = (("a", "b"), ("c",))
    whole = Examples(expected=EPOCH, seen=(own, other), is_whole=True)
    told = [n for n in describe_pipeline(whole) if "num_input_pipelines" in n]
    assert bool(told) is is_told
    if told:
        assert "of 7 examples that the replicas read, one device reads 3" in told[0]


def test_examples_of_which_each_pass_draws_some_are_no_other_part() -> None:
    """As of a flip that is drawn anew: chance leaves some as they were."""
    drawn = ((("a", "w"), ("x", "y")), (("c",), ("z",)))
    whole = Examples(expected=(*EPOCH, ("g", "h")), seen=drawn, is_whole=True)
    assert not any("num_input_pipelines" in note for note in describe_pipeline(whole))


@pytest.mark.parametrize("apart", [True, False], ids=["apart", "together"])
def test_examples_that_one_device_does_not_have_cannot_be_counted(apart: bool) -> None:
    drawn = ((("u", "v"), ("w", "x")), (("y",), ("z",)))
    whole = Examples(expected=EPOCH, seen=drawn, is_whole=True, apart=apart)
    assert not list(count_examples(whole))
    note = describe_pipeline(whole)[0]
    assert "of 6 examples that the replicas read, one device has 0 in its" in note


def test_of_a_part_of_an_epoch_no_example_is_unlike() -> None:
    drawn = ((("u", "v"), ("w", "x")), (("y",), ("z",)))
    assert not describe_pipeline(Examples(expected=EPOCH, seen=drawn, is_whole=False))


def go_round(*share: str, times: int = 3) -> tuple[tuple[str, ...], ...]:
    """Batches of two of a share that comes round so often."""
    read = share * times
    return tuple(read[i : i + 2] for i in range(0, len(read), 2))


@pytest.mark.parametrize("apart", [True, False], ids=["apart", "together"])
@pytest.mark.parametrize(
    ("shares", "names"),
    [
        (("abcd", "cdef"), (0, 1)),
        (("abcdef", "abc"), (0, 1)),
        (("abcd", "de", "f"), (0, 1)),
    ],
    ids=["overlap", "one-reads-all", "two-of-three"],
)
def test_shares_of_an_endless_data_set_must_not_overlap(shares, names, apart) -> None:
    [found] = find(*(go_round(*s) for s in shares), is_whole=False, apart=apart)
    read = sum(map(len, shares))
    assert found == ("examples-repeated", read / 6, () if apart else names)


@pytest.mark.parametrize("apart", [True, False], ids=["apart", "together"])
@pytest.mark.parametrize(
    "seen",
    [
        (go_round(*"abcd"), go_round(*"ef")),
        (go_round(*"abcde"), go_round(*"bcdef")),  # another remainder is dropped
        (go_round(*"abc"), go_round(*"abc"[::-1]), go_round(*"def"), go_round(*"fde")),
        (go_round(*"abcd", times=1), go_round(*"cdef", times=1)),  # it may go on
    ],
    ids=["own-shares", "remainders", "shared-twice", "one-round"],
)
def test_shares_of_an_endless_data_set_that_are_right(seen, apart) -> None:
    assert not find(*seen, is_whole=False, apart=apart)


@pytest.mark.parametrize("apart", [True, False], ids=["apart", "together"])
def test_nor_need_what_is_drawn_at_random_come_evenly(apart) -> None:
    seen = (*go_round(*"abcd"), ("a", "b"), ("a", "b")), go_round(*"cdef")
    drawn = (("a", "b", "a"), ("c", "d", "e"), ("f", "b", "c"))
    examples = Examples(expected=drawn, seen=seen, is_whole=False, apart=apart)
    assert not list(count_examples(examples))


def read(*orders: str) -> tuple[tuple[tuple[str, ...], ...], ...]:
    """Of each replica batches of three examples, in this order."""
    return tuple(
        tuple(tuple(order[n : n + 3]) for n in range(0, len(order), 3))
        for order in orders
    )


@pytest.mark.parametrize(
    ("orders", "is_told"),
    [
        (("abcdefghijcdklmnabef", "aimncbdrstabqrstijmn"), True),
        (("abcdefghijklmnopqrst", "dhajkbcilefgtsnmopqr"), False),  # epochs of its own
        (("abcdefghijklmnopqabc", "dhajkbcilefgtsnmodha"), False),  # and a remainder
        (("abcdefghijabcdefghij", "klmnopqrstklmnopqrst"), False),  # shares
        (("abcdefghijk", "abcdefghijk"[::-1]), False),  # too short to tell
    ],
)
def test_shares_of_an_endless_epoch_in_an_order_of_its_own(
    orders: tuple[str, ...], is_told: bool
) -> None:
    once = "abcdefghijklmnopqrst"
    seen = read(*orders)
    examples = Examples(expected=read(once)[0], seen=seen, is_whole=False)
    codes = [finding.code for finding in count_examples(examples)]
    assert codes == ["examples-repeated"] * is_told


@pytest.mark.parametrize("batch", [3, 4, 5, 7])
def test_an_endless_order_that_all_share_may_cross_the_end_of_an_epoch(
    batch: int,
) -> None:
    rng = np.random.default_rng(3)
    order = np.concatenate([rng.permutation(20) for _ in range(6)]).astype(str)
    steps = [tuple(order[n : n + 2 * batch]) for n in range(0, 100, 2 * batch)]
    seen = tuple(
        tuple(s[part * batch : (part + 1) * batch] for s in steps) for part in (0, 1)
    )
    examples = Examples(expected=tuple(steps), seen=seen, is_whole=False)
    assert not list(count_examples(examples))


def test_what_one_device_mixes_over_epochs_has_no_rounds() -> None:
    seen = read("abcabd", "abdabc")
    mixed = (("a", "b", "a"), ("c", "d", "e"), ("f", "b", "c"))
    examples = Examples(expected=mixed, seen=seen, is_whole=False)
    assert not list(count_examples(examples))
