"""Whether a whole update took what its slots show, or their rule alone did.

A program that updates by hand may hand something else to a slot than to the step that
it makes beside it. Where the whole update took it, one device says where that leads the
variables: they are there, or they are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from distbench.compare.arrays.bounds import find_roundoff
from distbench.compare.arrays.ratio import SAME
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.shown_sums import ROUNDINGS
from distbench.trace import WHOLE, Trace, TraceKey, Value
from distbench.trace.numbers import densify, measure_norm

Find = Callable[[TraceKey], Value | None]
"""State after a step, of those replicas that have it."""


def look_up(trace: Trace) -> Find:
    """State that is the same for all replicas, as a trace has it of replica 0."""
    return lambda key: trace.get(key.at(0))


def is_whole(context: Context, led: Find, due: Find | None = None) -> bool | None:
    """Whether the variables of wrong slots went where a whole update leads them.

    None where nothing tells: that leads them where they are due, or is not known.

    Args:
        context: The wrong slots.
        led: The state that the whole update leaves.
        due: That of the right one; what follows from the sum of all gradients if None.
    """
    due = due or _find_due(context)
    votes = []
    for key in dict.fromkeys(_list_owners(context)):
        found = (context.evidence.observed.get(key), due(key), led(key))
        seen, right, wrong = (None if v is None else densify(v) for v in found)
        if seen is None or right is None or wrong is None:
            continue
        added, rest = measure_norm(wrong - right), measure_norm(seen - wrong)
        roundoff = find_roundoff(context.infos[key.variable].dtype)
        near = max(SAME * added, ROUNDINGS * roundoff * measure_norm(wrong))
        if added > 0:
            votes.append(rest <= near and rest < measure_norm(seen - right))
    return sum(votes) * 2 > len(votes) if votes else None


def _find_due(context: Context) -> Find:
    fed, reference = context.evidence.fed.due, context.evidence.reference
    if fed is None:
        return lambda key: reference.get(key.at(WHOLE))
    return look_up(fed)


def _list_owners(context: Context) -> Iterator[TraceKey]:
    """The model variables of the wrong slots; of one that has none, all of them."""
    kept = context.evidence.subject.kept
    model = [
        info.path
        for info in context.infos.values()
        if info.role == "variable" and info.path not in kept
    ]
    for _, case in context.list_cases():
        owner = context.infos[case.key.variable].of
        for path in (owner,) if owner else model:
            yield replace(case.key, phase="variable", variable=path)
