"""What one device comes to after sums that a program may make by hand."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import product

import numpy as np

from distbench.evidence import Tier
from distbench.fed import Fed
from distbench.trace import (
    STATE,
    SUMMED,
    WHOLE,
    Trace,
    Value,
    Values,
    get_numbers,
)
from distbench.trace.numbers import densify, is_finite
from distbench.worker.one_device.decayed import LEAST, decay_again
from distbench.worker.one_device.feeder import Feeder, Start, keep
from distbench.worker.one_device.held_against import (
    are_multiples,
    differ,
    hands_on,
    take_replica,
    take_whole,
)
from distbench.worker.one_device.kept_back import join_kept_back
from distbench.worker.one_device.overwritten import overwrite_rows
from distbench.worker.one_device.state_by_hand import (
    StateByHand,
    find_state_by_hand,
)
from distbench.worker.one_device.sums import (
    NARROW,
    Sum,
    add_gradients,
    join_rows,
    list_narrow_sums,
    list_sums,
    mix_sums,
)
from distbench.worker.one_device.undetermined import find_undetermined
from distbench.worker.one_device.weighed_tapes import weigh_tapes
from distbench.worker.process.failures import SubjectError
from distbench.worker.state.values import are_near, have_same_bits

_LED = ("reduced_gradient", "variable")
"""Phases in which the state by hand shows whether a sum was the right one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summed:
    """What sums that a program may make by hand would lead to.

    Attributes:
        fed: What was fed: `sums` is empty where the right one leads to what the
            cluster has.
        by_hand: Variables of the model by what leads them.
        undetermined: State of which `due` does not tell what it has to be.
    """

    fed: Fed = field(default_factory=Fed)
    by_hand: StateByHand = field(default_factory=StateByHand)
    undetermined: tuple[str, ...] = ()


def try_sums(
    feeder: Feeder, tier: Tier, reference: Trace, observed: Trace, *, is_explained: bool
) -> Summed:
    """What one device comes to after sums that a program may make by hand.

    Asked where no sum was seen of something that trains, where one device makes
    something else of a sum before it is, or where the model holds state that follows
    from gradients; and where the right sum does not lead to what the cluster has.

    Args:
        feeder: Runs the reference's steps.
        tier: Which one.
        reference: What one device recorded in it.
        observed: What the cluster recorded.
        is_explained: Whether its state is what follows from its reduced gradients.
    """
    if not feeder.takes(tier):
        return Summed()
    is_any = any(key.phase in SUMMED for key in observed.values)
    is_seen = is_any and not find_unsummed(reference, observed)
    changes = is_seen and not hands_on(reference)
    whole = take_whole(reference, "reduced_gradient")
    right, average, *others = list_sums(observed.replicas)
    feed_way = partial(_feed_way, feeder, tier, observed)
    with suppress(SubjectError):
        hands_on_sums = is_seen and _hands_on_sums(observed, right)
        is_right = hands_on_sums or (is_seen and _has_reduced(observed, whole))
        if is_right and is_explained and not changes:
            return Summed()
        fed = add_gradients(observed, right)
        feed = partial(_feed_sum, feeder, tier, fed, right)
        due = feed()
        is_due = not differ(observed, due, _LED)
        is_changed = is_seen and not hands_on_sums and _has_reduced(observed, due)
        changed = due if is_changed else None
        if is_seen and (is_due or (is_explained and not changes)):
            return Summed(fed=Fed(changed=changed))
        if not is_due:
            joined = join_kept_back(feeder, tier, observed, due, feed)
            if joined is not None:
                due, is_due = joined, True
        by_hand = StateByHand()
        if not (is_explained and is_seen):
            by_hand = find_state_by_hand(feeder, tier, reference)
        kept = by_hand.kept
        mean = None if is_seen else feed_way(average)
        if is_due:
            weighed = weigh_tapes(feeder, tier, reference, observed)
            fed_to_tapes = Fed(due=due, mean=mean, sums=weighed)
            return Summed(fed=fed_to_tapes, by_hand=by_hand)
        undetermined: tuple[str, ...] = ()
        if not is_seen:
            undetermined = find_undetermined(
                feeder, tier, reference, observed, due, "local_gradient"
            )
        if kept or changes or not is_seen:
            tried = [mean or feed_way(average), *map(feed_way, others)]
            tried.append(_feed_none(feeder, tier, observed, right))
            tried += [
                _feed_narrow(
                    feeder, tier, observed, list_narrow_sums(observed.replicas, *which)
                )
                for which in product(NARROW, (False, True))
            ]
            decayed = decay_again(
                feeder,
                tier,
                fed,
                "local_gradient",
                times=observed.replicas,
                kept=kept,
            )
            found = Fed(
                due=None if is_seen else due,
                changed=changed,
                mean=mean,
                sums=tuple(tried),
                decayed=decayed,
                overwritten=overwrite_rows(
                    feeder, tier, join_rows(observed, fed), "local_gradient"
                ),
                again=_reduce_again(feeder, tier, fed, right, observed.replicas),
            )
            return Summed(fed=found, by_hand=by_hand, undetermined=undetermined)
    return Summed()


def find_unsummed(reference: Trace, observed: Trace) -> frozenset[str]:
    """Variables that a program trains by hand: no sum of their gradients was seen.

    Of none that one device leaves alone: its gradient may be there to be looked at.
    """
    summed = {key.variable for key in observed.values if key.phase in SUMMED}
    own = {key.variable for key in observed.values if key.phase == "local_gradient"}
    return frozenset(path for path in own - summed if _is_moved(reference, path))


def _has_reduced(observed: Trace, due: Trace) -> bool:
    """Whether the cluster reduces what one device makes of a sum, or of its batch."""
    handed = take_replica(observed, "reduced_gradient")
    return bool(handed.values) and are_multiples(handed, due, 1.0)


def _hands_on_sums(observed: Trace, right: Sum) -> bool:
    """Whether what the cluster reduces are the sums of its gradients as they are.

    They are added up one by one, up to the first that is something else.
    """
    is_any = False
    for key, value in observed.select(phase="reduced_gradient", replica=0):
        is_any = True
        own = observed.get_replicas(replace(key, phase="local_gradient"))
        dtype = observed.dtypes.get(key.variable)
        if not own or not _is_sum(value, right.add_up(own), dtype):
            return False
    return is_any


def _is_sum(value: Value, total: Value, dtype: str | None) -> bool:
    """Whether both are the same but for roundings, where they have room in the dtype.

    What has none is Inf or NaN by the order of the addends.
    """
    wide = densify(value), densify(total)
    finite, other = (np.isfinite(numbers) for numbers in wide)
    if not np.array_equal(finite, other):
        return False
    seen, due = (numbers[finite] for numbers in wide)
    return are_near(seen, due, dtype or get_numbers(value).dtype.name)


def _is_moved(reference: Trace, path: str) -> bool:
    found = reference.select(phase="variable", variable=path, replica=WHOLE)
    values = [value for _, value in found]
    return any(not have_same_bits(values[0], value) for value in values[1:])


def _feed_way(feeder: Feeder, tier: Tier, observed: Trace, way: Sum) -> Trace:
    return _feed_sum(feeder, tier, add_gradients(observed, way), way)


def _feed_narrow(
    feeder: Feeder, tier: Tier, observed: Trace, ways: Sequence[Sum]
) -> Trace:
    """Feed a sum in a narrow dtype, each element in the order that it shows."""
    fed = [add_gradients(observed, way) for way in ways]
    left = [_feed_sum(feeder, tier, sums, ways[0]) for sums in fed]
    if len(left) == 1:
        return left[0]
    return _feed_sum(feeder, tier, mix_sums(observed, fed, left), ways[0])


def _feed_none(feeder: Feeder, tier: Tier, observed: Trace, right: Sum) -> Trace:
    """Feed gradients of 0, or next to 0 where the program divides by their size."""
    none = replace(right, factor=0.0)
    found = _feed_way(feeder, tier, observed, none)
    state = Values(found.values).keep(lambda key: key.phase in STATE)
    if all(map(is_finite, state.values())):
        return found
    least = replace(right, factor=LEAST)
    return _feed_sum(feeder, tier, add_gradients(observed, least), none)


def _reduce_again(
    feeder: Feeder, tier: Tier, fed: Trace, right: Sum, replicas: int
) -> Trace | None:
    """Feed the sum to a step that counts N times what it reduces once more.

    A norm of what was summed already, whose squares are added up over replicas that
    each have all of it, say.
    """
    exchanged, session = feeder.reference.exchanged, feeder.reference.session
    # What is done between two steps may reduce what they did not.
    if not (exchanged.may_reduce_again or session.program.acts_between_steps):
        return None
    with feeder.trace_apart(), exchanged.scale_again(float(replicas)):
        found = _feed_sum(feeder, tier, fed, right)
    return found if exchanged.has_scaled else None


def _feed_sum(
    feeder: Feeder,
    tier: Tier,
    fed: Trace,
    way: Sum,
    *,
    start: Start = keep,
) -> Trace:
    return feeder.feed(tier, fed, "local_gradient", move=start, **asdict(way))
