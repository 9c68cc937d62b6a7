"""Whether examples follow from whose pipeline they came by."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from distbench.diagnose.remarks.examples import count_examples
from distbench.diagnose.remarks.own_data import are_known, find_own_data
from distbench.diagnose.remarks.pipelines import describe_pipeline
from distbench.examples import Counterpart, Examples

RNG = np.random.default_rng(5)
X = [RNG.normal(size=(12, 3)).astype("float32") for _ in range(2)]
NOISE = [RNG.normal(size=(12, 3)).astype("float32") for _ in range(2)]
LABELS = [RNG.integers(0, 3, size=(12, 1)) for _ in range(2)]
NAMES = tuple("abcdefghijkl"), tuple("mnopqrstuvwx")


def make(*seen: np.ndarray, batches: int = 3, asked: int = 12) -> Examples:
    """Two replicas that read this in the place of `X`, of which one device has it."""
    readers = tuple(
        Counterpart(
            reader=number,
            batches=batches,
            asked=asked,
            seen={"batch/x": features, "batch/label": LABELS[number]},
            due={"batch/x": X[number], "batch/label": LABELS[number]},
        )
        for number, features in enumerate(seen)
    )
    changed = [
        tuple(e if np.array_equal(features, X[number]) else e.upper() for e in own)
        for number, (features, own) in enumerate(zip(seen, NAMES, strict=True))
    ]
    return Examples(
        expected=(*NAMES,),
        seen=tuple((own[:6], own[6:]) for own in changed),
        is_whole=True,
        counterparts=(readers,),
    )


STANDARD = [(x - x.mean(0)) / x.std(0) for x in X]


@pytest.mark.parametrize(
    ("examples", "replicas"),
    [
        (make(X[0], 2 * X[1]), (1,)),
        (make(*STANDARD), (0, 1)),
        (make(3 * X[0], 2 * X[1]), (0, 1)),
    ],
    ids=["one-scaled", "standardised", "both-scaled"],
)
def test_a_rule_of_each_pipeline_is_a_fault(examples: Examples, replicas) -> None:
    (found,) = count_examples(examples)
    assert (found.code, found.replicas) == ("examples-missed", replicas)
    assert "'batch/x' is that of one device" in found.explanation
    assert "of the whole data set, before shard" in found.explanation
    assert not describe_pipeline(examples)
    (apart,) = count_examples(replace(examples, apart=True))
    assert f"workers {', '.join(map(str, replicas))}:" in apart.explanation


def test_readers_may_have_rows_of_other_lengths() -> None:
    """Batches that are padded to their own longest example differ by reader."""
    found = make(*STANDARD)
    first, second = found.counterparts[0]
    longer = replace(
        second,
        seen={**second.seen, "batch/x": np.pad(STANDARD[1], ((0, 0), (0, 2)))},
        due={**second.due, "batch/x": np.pad(X[1], ((0, 0), (0, 2)))},
    )
    (own,) = find_own_data(replace(found, counterparts=((first, longer),)))
    assert (own.name, own.readers) == ("batch/x", (0, 1))


def test_a_factor_is_named() -> None:
    (found,) = count_examples(make(X[0], 2 * X[1]))
    assert "of one device times 2, and" in found.explanation


@pytest.mark.parametrize(
    "examples",
    [
        make(2 * X[0], 2 * X[1]),
        make(X[0] + NOISE[0], X[1] + NOISE[1]),
        make(X[0] + NOISE[0], 2 * X[1]),
        make(*STANDARD, batches=1),
    ],
    ids=["one-rule", "noise", "noise-on-one", "one-batch"],
)
def test_what_may_be_meant_is_a_note(examples: Examples) -> None:
    assert not list(count_examples(examples))
    (note,) = describe_pipeline(examples)
    assert "so it is not known whether each comes once" in note


def test_what_steps_leave_out_is_neither() -> None:
    examples = replace(make(X[0], 2 * X[1]), own_left_out=True)
    assert not find_own_data(examples)
    assert not list(count_examples(examples))
    assert not describe_pipeline(examples)


def test_rounding_is_known_where_all_examples_have_their_own() -> None:
    rounded = [x * np.float32(1 + 2e-7) for x in X]
    assert are_known(make(*rounded))
    assert not describe_pipeline(make(*rounded))
    assert not are_known(make(*rounded, asked=13))
    lone = make(*rounded)
    assert not are_known(replace(lone, counterparts=(lone.counterparts[0][:1],)))


def test_endless_examples_that_one_device_never_has_are_not_missed() -> None:
    changed = make(X[0] + NOISE[0], X[1] + NOISE[1])
    twice = tuple((*own, *own) for own in changed.seen)
    endless = replace(
        changed, expected=changed.expected * 2, seen=twice, is_whole=False
    )
    assert not list(count_examples(endless))
    assert "so it is not known" in " ".join(describe_pipeline(endless))
