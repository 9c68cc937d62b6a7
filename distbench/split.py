"""How a global batch is split over replicas."""

from __future__ import annotations

from collections.abc import Sequence

from distbench.errors import BadInputError, count_things
from distbench.spelling import spell_given


def check_split(
    split: tuple[int, ...], examples: int, replicas: int, what: str
) -> None:
    """Raise BadInputError for shares that a cluster's replicas cannot have.

    Args:
        split: The share of each replica; empty leaves it to the bench.
        examples: Size of the global batch; 0 leaves it to the bench.
        replicas: Their number; 0 where it is not known yet.
        what: What messages are about.
    """
    if not split:
        if examples and replicas:
            split_unevenly(examples, replicas)
        return
    if replicas and len(split) != replicas:
        raise BadInputError(
            f"{what}: the split must have one share per replica. "
            f"Received: {count_things(len(split), 'share')}, "
            f"{count_things(replicas, 'replica')}."
        )
    if min(split) < 0 or sum(split) < 1:
        raise BadInputError(
            f"{what}: shares must not be negative, and one must be positive. "
            f"Received: {split}."
        )
    if examples not in (0, sum(split)):
        raise BadInputError(
            f"{what}: the shares must add up to the global batch. "
            f"Received: {split} for {count_things(examples, 'example')}."
        )


def split_unevenly(examples: int, replicas: int) -> tuple[int, ...]:
    """Give each replica a share that differs from the others' where it can.

    Equal shards hide a mean of means (every shard then weighs the same), so the
    shares fall linearly from 5/4 to 3/4 of the even share: 8 examples over two
    replicas are 5 + 3. Every replica gets at least one example.

    Args:
        examples: Size of the global batch.
        replicas: Number of shards.

    Returns:
        The shard sizes by replica; their sum is `examples`.

    Raises:
        BadInputError: There are fewer examples than replicas.
    """
    if examples < replicas:
        raise BadInputError(
            "The global batch must hold at least one example per replica. "
            f"Received: {count_things(examples, 'example')}, "
            f"{count_things(replicas, 'replica')}. "
            f"Use {count_things(replicas, 'example')} or more"
            f"{_tell_empty(examples, replicas)}."
        )
    if replicas == 1:
        return (examples,)
    spare = examples - replicas
    weights = [1.25 - 0.5 * r / (replicas - 1) for r in range(replicas)]
    wanted = [w * examples / replicas - 1 for w in weights]
    scale = spare / sum(w for w in wanted if w > 0) if spare else 0.0
    exact = [max(w, 0.0) * scale for w in wanted]
    sizes = [int(e) for e in exact]
    by_remainder = sorted(range(replicas), key=lambda r: sizes[r] - exact[r])
    for r in by_remainder[: spare - sum(sizes)]:
        sizes[r] += 1
    return tuple(s + 1 for s in sizes)


def _tell_empty(examples: int, replicas: int) -> str:
    """The split that leaves replicas without an example, which one asked for may."""
    if not examples:
        return ""
    # A task does not know how its user gives options.
    shares = ",".join(map(str, split_alike((1,) * replicas, examples)))
    return f", or ask for the split {shares}, which leaves some without any"


def tell_split(sizes: Sequence[int]) -> str:
    """The option that gives every replica as many examples as the largest average.

    Args:
        sizes: Examples of each replica, of which there is at least one.

    Returns:
        `--split 6,6` for 8 and 4 examples, as the user gives it; it says of how many
        examples if that takes another number of them.
    """
    share = -(-sum(sizes) // len(sizes))
    even = spell_given("split", (share,) * len(sizes))
    total = share * len(sizes)
    of = "" if total == sum(sizes) else f" of {total} examples"
    return f"'{even}'{of}"


def split_alike(sizes: tuple[int, ...], examples: int) -> tuple[int, ...]:
    """Share out another number of examples in the proportions of a split.

    Each share is rounded down, and what is left over goes to those that lost most: of
    one example for two replicas that had 5 and 3 the second gets none.

    Args:
        sizes: The split, not all 0.
        examples: How many there are this time.
    """
    wanted = [size * examples / sum(sizes) for size in sizes]
    shares = [int(share) for share in wanted]
    by_remainder = sorted(range(len(sizes)), key=lambda r: shares[r] - wanted[r])
    for r in by_remainder[: examples - sum(shares)]:
        shares[r] += 1
    return tuple(shares)


def shard_slices(sizes: tuple[int, ...]) -> tuple[slice, ...]:
    """Where each shard lies in the global batch, by replica."""
    ends = [sum(sizes[: r + 1]) for r in range(len(sizes))]
    return tuple(slice(e - s, e) for s, e in zip(sizes, ends, strict=True))
