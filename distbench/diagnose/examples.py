"""Whether every example of an epoch reaches the replicas just once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from distbench.codes import find_code
from distbench.evidence import Examples
from distbench.verdict import Finding


def count_examples(examples: Examples | None) -> Iterator[Finding]:
    """Findings of an input pipeline.

    What is counted is the content: an example that a data set holds twice may be seen
    twice. Examples that one device never saw take the place of ones that are missed: a
    remainder that both drop need not be the same.
    """
    if examples is None:
        return
    if examples.is_whole:
        yield from _count_epoch(examples)
    else:
        yield from _compare_replicas(examples)


def _count_epoch(examples: Examples) -> Iterator[Finding]:
    expected = Counter(e for batch in examples.expected for e in batch)
    seen = [Counter(e for batch in batches for e in batch) for batches in examples.seen]
    total: Counter[str] = sum(seen, Counter())
    known = Counter({e: n for e, n in total.items() if e in expected})
    repeated, missed = known - expected, expected - known
    new = total.total() - known.total()
    if repeated:
        holders = [r for r, own in enumerate(seen) if any(e in own for e in repeated)]
        yield _make_finding(
            "examples-repeated",
            repeated.total(),
            expected.total(),
            total.total() / expected.total(),
            tuple(holders),
            f"{repeated.total()} times an example of the epoch is seen again",
        )
    if missed.total() > new:
        lost = missed.total() - new
        yield _make_finding(
            "examples-missed",
            lost,
            expected.total(),
            (known.total() + new) / expected.total(),
            (),
            f"{lost} of the {expected.total()} examples of an epoch reach no replica",
        )


def _compare_replicas(examples: Examples) -> Iterator[Finding]:
    """Of an endless data set: whether all replicas read the same, or all read less."""
    expected = Counter(e for batch in examples.expected for e in batch)
    seen = Counter(e for own in examples.seen for batch in own for e in batch)
    # What was read at least twice has come round: nothing else is to come.
    if expected and seen and min(*expected.values(), *seen.values()) > 1:
        lost = len(set(expected) - set(seen))
        if lost:
            yield _make_finding(
                "examples-missed",
                lost,
                len(expected),
                (len(expected) - lost) / len(expected),
                (),
                f"{lost} of {len(expected)} examples reach no replica",
            )
    first, *others = examples.seen
    if not others or not first or any(own != first for own in others):
        return
    read = [e for batch in first for e in batch]
    if len(set(read)) == 1:
        return  # all examples of the data set are alike
    yield _make_finding(
        "examples-repeated",
        len(others) * len(read),
        len(read),
        float(len(examples.seen)),
        tuple(range(len(examples.seen))),
        f"all {len(examples.seen)} replicas read the same examples in the same order",
    )


def _make_finding(
    code: str,
    count: int,
    expected: int,
    ratio: float,
    replicas: tuple[int, ...],
    words: str,
) -> Finding:
    who = f"replicas {', '.join(map(str, replicas))}: " if replicas else ""
    return Finding(
        code=code,
        phase="loss",
        step=0,
        variable="",
        replicas=replicas,
        ratio=ratio,
        error=count / expected,
        bound=0.0,
        explanation=(
            f"Input pipeline, {who}{words} ({code}; ratio {ratio:.6g}, counted by "
            f"content, against one device). {find_code(code).fix}"
        ),
        confidence=1.0,
    )
