"""What follows on one device from values that a cluster was seen to have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from distbench.evidence import Tier
from distbench.fed import Fed
from distbench.trace import UPDATED, Phase, SparseRows, Trace, Values
from distbench.worker.one_device.decayed import decay_again
from distbench.worker.one_device.feeder import Feeder
from distbench.worker.one_device.held_against import (
    differ,
    hands_on,
    has_other_slices,
    take_whole,
)
from distbench.worker.one_device.other_counts import count_otherwise
from distbench.worker.one_device.overwritten import overwrite_rows
from distbench.worker.process.failures import SubjectError
from distbench.worker.process.op_by_op import run_op_by_op

_MOST_TIMES = 8
"""How often an update is repeated at most: tried are all counts up to N, and to 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What follows from the observed gradients, if its state does.

    Attributes:
        fed: The replays, and where the state is not what follows, what else was fed.
        is_explained: Whether the state is what follows from the reduced gradients.
    """

    fed: Fed = field(default_factory=Fed)
    is_explained: bool = True


def follow(feeder: Feeder, tier: Tier, observed: Trace) -> Followed:
    """Feed observed values into the single-device update.

    Where the state is what follows from the reduced gradients, no more is asked.
    """
    if not feeder.takes(tier):
        return Followed()
    reduced = feeder.feed(tier, observed, "reduced_gradient")
    replays: dict[Phase, Trace] = {"reduced_gradient": reduced}
    if _applies_another(observed, reduced):
        replays["applied_gradient"] = feeder.feed(tier, observed, "applied_gradient")
    if not differ(observed, reduced, UPDATED):
        return Followed(fed=Fed(replays=replays))
    # A rule may refuse what no replica would hand it; then nothing is learnt.
    with suppress(SubjectError):
        replays["local_gradient"] = feeder.feed(
            tier, observed, "reduced_gradient", source="local_gradient"
        )
    op_by_op = None
    if feeder.reference.scenario.jit:
        with run_op_by_op():
            op_by_op = feeder.feed(tier, observed, "reduced_gradient")
    fed = Fed(
        replays=replays,
        op_by_op=op_by_op,
        repeated=tuple(_repeat(feeder, tier, observed)),
        decayed=decay_again(
            feeder, tier, observed, "reduced_gradient", times=observed.replicas
        ),
        counted=count_otherwise(feeder, tier, observed, reduced),
        overwritten=overwrite_rows(feeder, tier, observed),
        turns=feeder.take_turns(tier, observed) if _is_shared(observed) else None,
    )
    return Followed(fed=fed, is_explained=False)


def _applies_another(observed: Trace, reduced: Trace) -> bool:
    phase: Phase = "applied_gradient"
    return differ(observed, reduced, (phase,)) or has_other_slices(
        observed, reduced, phase
    )


def trace_ahead(feeder: Feeder, tier: Tier, reference: Trace) -> None:
    """Trace the step that takes its gradients from outside, by the reference's own.

    Tracing and the first run take most of the time, and need nothing of a cluster.
    """
    if not feeder.takes(tier):
        return
    handed = take_whole(reference, "reduced_gradient")
    first = min((key.step for key in handed.values), default=0)
    own = take_whole(reference, "reduced_gradient", step=first)
    with suppress(SubjectError):
        feeder.feed(tier, own, "reduced_gradient")


def change_apart(
    feeder: Feeder, tier: Tier, reference: Trace, observed: Trace, *, is_explained: bool
) -> Trace | None:
    """What one device makes of each replica's own gradients.

    None where it hands on its own as they are, and the cluster's state is known.

    Args:
        feeder: Runs the reference's steps.
        tier: Which one.
        reference: What one device recorded in it.
        observed: What the cluster recorded.
        is_explained: Whether its state is what follows from its reduced gradients.
    """
    if not feeder.takes(tier):
        return None
    if is_explained and hands_on(reference):
        return None
    with suppress(SubjectError):
        return feeder.feed(tier, observed, "local_gradient")
    return None


def _repeat(feeder: Feeder, tier: Tier, observed: Trace) -> Iterator[Trace]:
    """Apply the update to observed reduced gradients 2, 3, … times in one step.

    In half of the traces the slots take it once and the variables alone again.
    """
    times = min(max(4, feeder.reference.replicas), _MOST_TIMES)
    for kept in (UPDATED, ("variable",)):
        with suppress(SubjectError):
            yield from feeder.feed_often(
                tier, observed, "reduced_gradient", times, kept
            )[1:]


def add_repeated_rows(feeder: Feeder, tier: Tier, reference: Trace) -> Trace | None:
    """The first step's update with repeated rows of its gradients added up.

    None where no gradient has any. A rule for sparse gradients should not care.
    """
    handed = take_whole(reference, "reduced_gradient", step=0)
    distinct = {
        key: value.merge()
        for key, value in handed.values.items()
        if isinstance(value, SparseRows) and value.repeats_rows
    }
    if not distinct:
        return None
    fed = Values(handed.values)
    fed.update(distinct)
    return feeder.feed(tier, replace(handed, values=fed), "reduced_gradient")


def _is_shared(observed: Trace) -> bool:
    """Whether one copy of the model's variables serves several replicas."""
    holders = {key.replica for key in observed.values if key.phase == "variable"}
    return observed.replicas > 1 and holders == {0}
