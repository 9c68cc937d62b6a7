"""Whether every example of an epoch reaches the replicas just once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, zip_longest

from distbench.codes import CODES
from distbench.diagnose.remarks.own_data import OwnData, find_own_data
from distbench.diagnose.remarks.own_laws import Law
from distbench.examples import Examples
from distbench.verdict import Finding


def count_examples(examples: Examples | None) -> Iterator[Finding]:
    """Findings of an input pipeline.

    What is counted is the content: an example that a data set holds twice may be seen
    twice. Examples that one device never saw take the place of ones that are missed: a
    remainder that both drop need not be the same. Where as many are seen again as are
    missed, shares are as long as they should be and overlap: that is one mistake.

    Workers of parameter servers share an epoch out, or each reads one of its own, as
    TensorFlow's context has it, which tells every worker that it is the only one: what
    was read is held against the one of the two that it is nearer to.
    """
    if examples is None:
        return
    yield from _tell_own_data(examples)
    if not examples.is_known:
        return
    if not examples.is_whole:
        yield from _compare_replicas(examples)
        return
    readers = [Counter(e for batch in own for e in batch) for own in examples.seen]
    count = _count_epoch(examples, [sum(readers, Counter())])
    if examples.apart:
        count = min(count, _count_epoch(examples, readers), key=_Count.count_wrong)
    yield from _tell(count, readers, apart=examples.apart)


_EPOCH = 7 / 8
"""Of such a part of what is read in the length of an epoch no example comes twice."""
_RULES: dict[Law, str] = {
    "linear": "linear function of each column",
    "renamed": "function of each value or row",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Count:
    """What was read of as many epochs as there are groups of readers.

    Attributes:
        expected: How many examples are due.
        total: How many were read.
        new: How many of these one device never saw.
        missed: How many were not read as often as is due.
        repeated: By group, those that were read too often.
    """

    expected: int
    total: int
    new: int
    missed: int
    repeated: tuple[Counter[str], ...]

    def count_wrong(self) -> int:
        return self.missed + sum(found.total() for found in self.repeated)


def _count_epoch(examples: Examples, groups: Sequence[Counter[str]]) -> _Count:
    once = Counter(e for batch in examples.expected for e in batch)
    known = [Counter({e: n for e, n in own.items() if e in once}) for own in groups]
    total = sum(own.total() for own in groups)
    return _Count(
        expected=len(groups) * once.total(),
        total=total,
        new=total - sum(own.total() for own in known),
        missed=sum((once - own).total() for own in known),
        repeated=tuple(own - once for own in known),
    )


def _tell(
    count: _Count, readers: Sequence[Counter[str]], *, apart: bool
) -> Iterator[Finding]:
    ratio = count.total / count.expected
    lost = max(0, count.missed - count.new)
    again = sum(found.total() for found in count.repeated)
    if again:
        instead = ", in place of as many that are missed" if again == lost else ""
        # All readers are one group, or each is one.
        pairs = zip(readers, cycle(count.repeated), strict=False)
        holders = [
            number
            for number, (own, repeated) in enumerate(pairs)
            if any(e in own for e in repeated)
        ]
        yield _make_finding(
            "examples-repeated",
            again / count.expected,
            ratio,
            tuple(holders),
            f"{again} times an example of the epoch is seen again{instead}",
            apart=apart,
        )
    if lost and again != lost:
        who = "worker" if apart else "replica"
        yield _make_finding(
            "examples-missed",
            lost / count.expected,
            ratio,
            (),
            f"{lost} of the {count.expected} examples of an epoch reach no {who}",
        )


def _tell_own_data(examples: Examples) -> Iterator[Finding]:
    """Of what readers make of the examples, each by a rule of its own."""
    found = find_own_data(examples)
    if not found:
        return
    once = examples.due
    readers = tuple(sorted({reader for own in found for reader in own.readers}))
    read = [e for reader in readers for batch in examples.seen[reader] for e in batch]
    others = sum(e not in once for e in read)
    arrays = " and ".join(map(_describe_own, found))
    yield _make_finding(
        "examples-missed",
        others / len(read),
        1.0,
        readers,
        f"of {len(read)} examples that reach them one device has "
        f"{len(read) - others}. {arrays}, and another rule holds for others: it is "
        "made of the own shard, or by the worker's number",
        apart=examples.apart,
        advice="Take statistics, vocabularies and weights of the whole data set, "
        "before shard, and make nothing of the worker's number but its share.",
    )


def _describe_own(own: OwnData) -> str:
    times = " and ".join(f"{factor:.4g}" for factor in own.factors)
    made = f"times {times}" if times else f"by a {_RULES[own.law]}"
    return f"'{own.name}' is that of one device {made}"


def _compare_replicas(examples: Examples) -> Iterator[Finding]:
    """Of an endless data set: whether all replicas read the same, or all read less."""
    expected = Counter(e for batch in examples.expected for e in batch)
    seen = Counter(e for own in examples.seen for batch in own for e in batch)
    # What was read at least twice has come round: nothing else is to come.
    if expected and seen and min(*expected.values(), *seen.values()) > 1:
        # As of an epoch, what one device never saw takes the place of what is missed.
        lost = len(set(expected) - set(seen)) - len(set(seen) - set(expected))
        if lost > 0:
            yield _make_finding(
                "examples-missed",
                lost / len(expected),
                (len(expected) - lost) / len(expected),
                (),
                f"{lost} of {len(expected)} examples reach no replica",
            )
    yield from list(_compare_shares(examples)) or _compare_rounds(examples)
    first, *others = examples.seen
    if examples.apart:
        return  # each trains by itself, and none counts on another to read the rest
    if not others or not first or any(own != first for own in others):
        return
    read = [e for batch in first for e in batch]
    if len(set(read)) == 1:
        return  # all examples of the data set are alike
    yield _make_finding(
        "examples-repeated",
        float(len(others)),
        float(len(examples.seen)),
        tuple(range(len(examples.seen))),
        f"all {len(examples.seen)} replicas read the same examples in the same order",
    )


def _compare_shares(examples: Examples) -> Iterator[Finding]:
    """Of an endless data set: whether the shares that replicas read overlap.

    Each may have a share of its own, or all but a remainder; what comes round evenly is
    all that a replica ever reads. Shares that overlap let some examples count more.
    """
    shares = [Counter(e for batch in own for e in batch) for own in examples.seen]
    if not all(shares) or not all(map(_came_round, shares)):
        return
    readers = Counter(e for share in shares for e in share)
    often = max(readers.values())
    if often == min(readers.values()) or all(
        len(readers) - len(share) < len(own[0])
        for share, own in zip(shares, examples.seen, strict=True)
    ):
        return
    most = {e for e, count in readers.items() if count == often}
    who = "workers" if examples.apart else "replicas"
    yield _make_finding(
        "examples-repeated",
        (readers.total() - len(readers)) / len(readers),
        readers.total() / len(readers),
        tuple(n for n, share in enumerate(shares) if most & share.keys()),
        f"{len(most)} of {len(readers)} examples are read over and over by {often} "
        f"{who}, the others by fewer",
        apart=examples.apart,
    )


def _compare_rounds(examples: Examples) -> Iterator[Finding]:
    """Of an endless data set: whether replicas take shares of orders of their own.

    One device reads each example once before any comes again. Replicas do so together,
    step by step, or each by itself; else those that several of them read at first take
    the place of others, though all come in the end. Shares that come round at other
    times, as those of files do, have nothing in common.
    """
    once = examples.due
    size = len(once)
    due = [e for batch in examples.expected for e in batch][:size]
    readers = [[e for batch in own for e in batch] for own in examples.seen]
    if len({*due}) < size or any(len(own) < size for own in readers):
        return
    steps = zip_longest(*examples.seen, fillvalue=())
    read = [
        (e, reader) for step in steps for reader, own in enumerate(step) for e in own
    ]
    batches = [len(own[0]) for own in examples.seen if own]
    epochs = [
        _reads_epochs([e for e, _ in read], size, sum(batches)),
        *(_reads_epochs(own, size, max(batches)) for own in readers if batches),
    ]
    holders: dict[str, set[int]] = {}
    for e, reader in read[:size]:
        holders.setdefault(e, set()).add(reader)
    common = {e for e, found in holders.items() if len(found) > 1}
    if any(epochs) or not common:
        return
    yield _make_finding(
        "examples-repeated",
        (size - len(holders)) / size,
        size / len(holders),
        tuple(sorted({reader for e in common for reader in holders[e]})),
        f"of the first {size} examples that are read, as many as one device has, "
        f"{size - len(holders)} come again, and as many do not come, as where each "
        "takes its share of an order of its own",
        apart=examples.apart,
    )


def _reads_epochs(read: Sequence[str], size: int, batch: int) -> bool:
    """Whether a replica reads epochs by itself.

    It may drop a remainder of a batch, and mix the end of one with the next. Two
    shares of orders that have nothing to do with each other have a quarter twice.
    """
    length = size - batch + 1
    return len({*read[:length]}) >= _EPOCH * length


def _came_round(share: Counter[str]) -> bool:
    """Whether each of these examples was read as often as the others, and again."""
    return max(share.values()) - 1 <= min(share.values()) > 1


def _make_finding(
    code: str,
    error: float,
    ratio: float,
    replicas: tuple[int, ...],
    words: str,
    *,
    apart: bool = False,
    advice: str = "",
) -> Finding:
    kind = "workers" if apart else "replicas"
    who = f"{kind} {', '.join(map(str, replicas))}: " if replicas else ""
    return Finding(
        code=code,
        phase="loss",
        step=0,
        variable="",
        replicas=() if apart else replicas,
        ratio=ratio,
        error=error,
        bound=0.0,
        explanation=(
            f"Input pipeline, {who}{words} ({code}; ratio {ratio:.6g}, counted by "
            f"content, against one device). "
            f"{advice or CODES[code].advise(alone=apart)}"
        ),
        confidence=1.0,
    )
