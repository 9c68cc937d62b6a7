"""Shards that lose examples which count on one device, by their places in a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from distbench.compare.arrays.pair import Pair
from distbench.compare.arrays.ratio import share_by_size
from distbench.compare.nature.shards import find_shares
from distbench.diagnose.clues.cases import take_rows
from distbench.diagnose.clues.context import Context, find_shards
from distbench.diagnose.clues.fit import add_weighted
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.trace import COMPUTED, WHOLE
from distbench.trace.numbers import Array

_ADVICE = (
    "Let no example depend on its place in the shard: take the remainder of a division "
    "as well (i n // k to (i + 1) n // k), and choose examples by what they are, as by "
    "a number that each brings along, or before they are dealt out."
)


def explain_by_missed_examples(context: Context) -> Iterator[Hypothesis]:
    """Each replica brings what its shard alone gives, and the examples are others.

    Which examples count in a batch one device tells, by putting others in their places.
    What each shard alone gives needs no fit: it counts once, by its size, or 1/N.
    """
    counted = context.evidence.counted
    if counted is None or not (counted.missed or counted.added):
        return
    if not context.root or context.phase not in COMPUTED:
        return
    of_one = f" of '{counted.variable}'" if counted.variable else ""
    words = (
        f"which examples have a gradient{of_one} depends on their places in a batch, "
        "and a shard has other places than the global batch: of the examples of step "
        f"{counted.step}, counted from 0, {_describe(counted.missed, counted.added)}"
    )
    for predicted in _foretell(context):
        yield Hypothesis(
            code="examples-missed",
            predicted=predicted,
            detail=words,
            phase="loss",
            advice=_ADVICE,
        )


def describe_places(context: Context) -> tuple[str, str]:
    """Says that examples add what follows from their places in a shard, and advises.

    Empty where all that is wrong is not what shards alone give, or what they give with
    all that is exchanged; or where no example adds to a gradient what follows from its
    place there and from no other one.
    """
    counted = context.evidence.counted
    if counted is None or not counted.by_place or context.phase not in COMPUTED:
        return "", ""
    if not any(
        len(predicted) == len(context.cases) and context.match_all(predicted)
        for predicted in _foretell(context, given=counted.given)
    ):
        return "", ""
    if counted.given:
        return (
            "what an example adds to the loss depends on what is gathered of all "
            "replicas and on its place in the batch, and on no other example; each "
            "replica counts places within its own shard, but in what is gathered those "
            "places belong to examples of other replicas",
            "Add the number of the examples of all replicas before this one to places "
            "in the own shard (the sum of what all_gather has of their sizes, up to "
            "replica_id_in_sync_group), wherever they stand for places in what is "
            "gathered.",
        )
    return (
        f"what an example adds to the gradient of '{counted.variable}' depends on its "
        "place in the batch, and on no other example; each replica counts places "
        "within its shard, where other examples have them, and has what that shard "
        "alone gives on one device",
        _ADVICE,
    )


def _foretell(context: Context, *, given: bool = False) -> list[dict[int, Array]]:
    """What shards alone make of the values, by each way in which they may count.

    Args:
        context: Of the phase.
        given: Whether shards are given what the global batch exchanges.
    """
    shares = find_shares(context.evidence) or {}
    found: list[dict[int, Array]] = [{} for _ in range(4)]
    for number, case in context.list_cases():
        terms = _find_given(context, case) if given else find_shards(context, case)
        if case.key.replica == WHOLE and terms:
            sizes = context.get_shards(case)
            ways = _list_weights(sizes, shares.get(case.key.step))
            for predicted, weights in zip(found, ways, strict=False):
                predicted[number] = add_weighted(weights, terms)
    return found


def _find_given(context: Context, case: Pair) -> tuple[Array, ...]:
    """What shards make of a value that are given what the global batch exchanges."""
    trace = context.evidence.probes["exchanged"]
    return tuple(take_rows(value, case) for value in trace.get_replicas(case.key))


def _list_weights(
    sizes: Sequence[int], shares: Sequence[float] | None
) -> list[Sequence[float]]:
    """What shards may count: once, by their sizes, evenly, or by a count over all."""
    found: list[Sequence[float]] = [
        (1.0,) * len(sizes),
        share_by_size(sizes),
        (1 / len(sizes),) * len(sizes),
    ]
    return found if shares is None else [*found, shares]


def _describe(missed: Sequence[int], added: Sequence[int]) -> str:
    found: list[str] = []
    if missed:
        found.append(f"one device takes {_name(missed)} and no replica does")
    if added:
        found.append(f"replicas take {_name(added)} and one device does not")
    return ", and ".join(found)


def _name(numbers: Sequence[int]) -> str:
    """Numbers of examples: `7`, `7, 11`, and of more than two in a row `0-4, 9`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(
        f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run))
        for run in runs
    )
