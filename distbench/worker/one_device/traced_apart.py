"""What one device makes of numbers of Python's that every replica's trace moves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from distbench.evidence import Tier
from distbench.trace import Trace, Values
from distbench.worker.one_device.feeder import Feeder
from distbench.worker.process.failures import SubjectError
from distbench.worker.state.python_numbers import (
    Move,
    Moved,
    Number,
    find_move,
    move_further,
    read_numbers,
    write_number,
)


def trace_for_each(feeder: Feeder, tier: Tier, observed: Trace) -> tuple[Trace, ...]:
    """Feed the observed reduced gradients to steps that are traced as replicas' are.

    A number of Python's that an update moves, a count of its calls say, is moved while
    the step is traced, and the graph keeps what it was. A process that traces for n
    replicas moves it n times as often: for one replica's variable after the other's,
    or for all of a replica's and then for the next one's. So for each replica a step
    is traced that begins at the number that its own did and takes as many moves from
    variable to variable. A note says which number that is (`number`).

    Args:
        feeder: Runs the reference's steps.
        tier: Which one.
        observed: What the cluster recorded; its notes say for how many replicas each
            process traces, and where numbers came to by that.

    Returns:
        A trace for each number and order. Empty where no number moves, or each process
        traces for one replica.
    """
    session = feeder.reference.session
    here, ends = observed.notes.get("traced_for"), observed.notes.get("numbers")
    if not isinstance(here, int) or here < 2 or not isinstance(ends, Mapping):
        return ()
    now = read_numbers(session.optimizers)
    moved = [n for n, value in feeder.numbers.items() if now.get(n, value) != value]
    found: list[Trace] = []
    for name in moved:
        # A rule may refuse to be traced from another number, and a class that another
        # is derived from it; then nothing is learnt.
        with suppress(SubjectError, TypeError):
            if name in ends:
                found.extend(_trace_number(feeder, tier, observed, name, ends, here))
    return tuple(found)


def _trace_number(
    feeder: Feeder,
    tier: Tier,
    observed: Trace,
    name: str,
    ends: Mapping[str, Number],
    here: int,
) -> Iterator[Trace]:
    """What follows where a number is moved for each replica, in one order or another.

    Args:
        feeder: Runs the reference's steps.
        tier: Which one.
        observed: What the cluster recorded.
        name: Of the number.
        ends: Where numbers came to when the cluster's step was traced.
        here: For how many replicas a process traces.
    """
    moves: list[Moved] = []

    def watch(before: Number, after: Number) -> Number:
        moves.append((before, after))
        return after

    optimizers = feeder.reference.session.optimizers
    # What puts the number back is no move of the update's.
    with feeder.trace_apart(), move_further(optimizers, name, watch):
        _feed_one(feeder, tier, observed, 0)
    move, calls = find_move(moves), len(moves)
    if move is None:
        return
    first = move(ends[name], -here * calls)
    # Variable by variable, where an update reads it before it moves it, or after that;
    # or replica by replica.
    for begin, ahead, times in (
        (first, 1, here),
        (move(first, 1 - here), 1, here),
        (first, calls, 1),
    ):
        values: Values[Any] = feeder.reference.session.make_values()
        for replica in range(observed.replicas):
            with feeder.trace_apart():
                write_number(optimizers, name, move(begin, replica % here * ahead))
                with move_further(optimizers, name, _repeat(move, times)):
                    trace = _feed_one(feeder, tier, observed, replica)
            values.update(trace.values)
        notes = {**trace.notes, "number": name.partition(".")[2]}
        yield replace(trace, values=values, notes=notes)


def _repeat(move: Move, times: int) -> Any:
    return lambda before, _: move(before, times)


def _feed_one(feeder: Feeder, tier: Tier, observed: Trace, replica: int) -> Trace:
    """What follows from one replica's reduced gradients, by a step of its own trace."""
    own = Values(observed.values).keep(lambda key: key.replica == replica)
    return feeder.feed(tier, replace(observed, values=own), "reduced_gradient")
