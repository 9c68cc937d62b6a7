"""Whether an optimizer sums what its step has reduced over the replicas before."""

from __future__ import annotations

from contextlib import suppress

from distbench.evidence import Tier
from distbench.trace import Phase, Trace
from distbench.worker.one_device.feeder import Feeder
from distbench.worker.one_device.held_against import are_multiples, take_whole
from distbench.worker.process.failures import SubjectError

_HANDED: Phase = "reduced_gradient"


def sums_means(feeder: Feeder, tier: Tier, recorded: Trace) -> bool:
    """Whether a program whose losses are averaged reduces every gradient twice.

    The sum of means is that of the gradients themselves, as if nobody had averaged. One
    device tells: what it reduces of what it has reduced counts N times, and so does
    all that it then has as sums.

    Args:
        feeder: Runs the reference's steps.
        tier: Which one.
        recorded: What one device recorded in it.
    """
    reference = feeder.reference
    replicas, exchanged = reference.replicas, reference.exchanged
    is_averaged = reference.session.program.loss_reduction == "mean"
    if not (is_averaged and replicas > 1 and exchanged.may_reduce_again):
        return False
    handed = take_whole(recorded, _HANDED)
    if not (handed.values and feeder.takes(tier)):
        return False
    # A step that cannot take them tells nothing.
    with suppress(SubjectError):
        own = take_whole(recorded, "local_gradient")
        with feeder.trace_apart(), exchanged.scale_again(float(replicas)):
            again = feeder.feed(tier, own, "local_gradient")
        return exchanged.has_scaled and are_multiples(handed, again, replicas)
    return False
