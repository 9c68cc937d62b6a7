"""What the user should know of an input pipeline, though it may be meant."""

from __future__ import annotations

from collections import Counter

from distbench.diagnose.remarks.own_data import are_known, find_own_data
from distbench.examples import Examples

_UNEVEN = 1.25
"""Parts of a data set that differ by less are those of a remainder."""

_UNSURE = (
    "note: batches have several lengths, and other values than 0 may fill up shorter "
    "examples, so it is not known whether each example comes once"
)


def describe_pipeline(examples: Examples | None) -> tuple[str, ...]:
    """Notes about how much the replicas read; none where each trains by itself."""
    if examples is None:
        return ()
    # What is told of examples, or makes no difference, is not told once more.
    is_told = bool(find_own_data(examples)) or are_known(examples)
    if not examples.is_known:
        return () if is_told else (_UNSURE,)
    notes = [] if is_told else [_note_unlike(examples)]
    notes.append(_note_sizes(examples))
    if not examples.apart:
        notes.append(_note_rounds(examples))
        notes += [] if is_told else [_note_others(examples)]
    return tuple(filter(None, notes))


def _note_unlike(examples: Examples) -> str:
    """Whether replicas read other examples in the place of those of one device.

    As where they are drawn: how often each comes is not counted then.
    """
    due = Counter(e for batch in examples.expected for e in batch)
    is_all = examples.is_whole or min(due.values(), default=0) > 1
    read = examples.read
    lost, new = len(due.keys() - read), len(read - due.keys())
    if not is_all or not _are_many(examples, new):
        return ""
    if lost <= _find_batch(examples) and not examples.apart:
        return ""
    return (
        f"note: of {len(read)} examples that the replicas read, one device has "
        f"{len(read & due.keys())} in its epoch of {len(due)}, so it is not known "
        "whether each comes once. That is right where each pass draws them, or where "
        "they follow from their batch; what follows from the own shard or the worker's "
        "number, as a statistic or a seed that is alike on all, is not"
    )


def _note_sizes(examples: Examples) -> str:
    """Whether a step has another global batch than one device's.

    It is what all replicas together read, or each one who trains by himself.
    """
    if len(examples.expected) < 2:
        return ""  # a lone batch is a remainder
    due = len(examples.expected[0])
    if examples.apart:
        return _note_own_sizes(examples, due)
    read = sum(len(own[0]) for own in examples.seen if own)
    if read == due:
        return ""
    return (
        f"note: in the first step all replicas together read {read} examples, where "
        f"one device reads {due}; a pipeline's part of a global batch is "
        "input_context.get_per_replica_batch_size(global_batch_size)"
    )


def _note_own_sizes(examples: Examples, due: int) -> str:
    # The last batch of one device may be a remainder, and so is one that is alone.
    usual = {len(batch) for batch in examples.expected[:-1]}
    sizes = {len(own[0]) for own in examples.seen if len(own) > 1} - usual
    if not sizes:
        return ""
    read = " or ".join(map(str, sorted(sizes)))
    return (
        f"note: a worker's first batch has {read} examples, and one device's {due}. "
        "Each worker takes steps of its own, so a loss that divides by a constant "
        "global size is another one than on one device, and a mean over the own batch "
        "is not"
    )


def _note_rounds(examples: Examples) -> str:
    """Whether an endless data set comes round more often for some than for others."""
    if examples.is_whole:
        return ""
    parts = [Counter(e for batch in own for e in batch) for own in examples.seen]
    sizes = [len(part) for part in parts]
    is_apart = len(set().union(*parts)) == sum(sizes)
    came_round = all(part and min(part.values()) > 1 for part in parts)
    if not (is_apart and came_round) or max(sizes) < _UNEVEN * min(sizes):
        return ""
    few, many = sizes.index(min(sizes)), sizes.index(max(sizes))
    return (
        f"note: the pipeline has no end, and replica {few} reads {sizes[few]} examples "
        f"over and over where replica {many} has {sizes[many]}: each of the former "
        f"counts {sizes[many] / sizes[few]:.3g} times as much"
    )


def _note_others(examples: Examples) -> str:
    """Whether replicas read another part of the data set than one device.

    As where its parts are counted by a constant, so that one device reads one of them,
    which some replica reads as well. Where it does not, each pass draws its own.
    """
    if not examples.is_whole:
        return ""
    due, read = examples.due, examples.read
    lost, new = len(due - read), len(read - due)
    if lost > _find_batch(examples) or not _are_many(examples, new) or not due & read:
        return ""
    return (
        f"note: of {len(read)} examples that the replicas read, one device reads "
        f"{len(read & due)} in an epoch, of {len(due)}: a pipeline's part of the data "
        "is shard(input_context.num_input_pipelines, input_context.input_pipeline_id), "
        "and take() of so many examples comes before that"
    )


def _find_batch(examples: Examples) -> int:
    """Examples of the largest batch of one device."""
    return max((len(batch) for batch in examples.expected), default=0)


def _are_many(examples: Examples, count: int) -> bool:
    """Whether these are more than a remainder, which fills no batch.

    A batch that is the only one is a remainder as well.
    """
    return count >= _find_batch(examples) + (len(examples.expected) < 2)
