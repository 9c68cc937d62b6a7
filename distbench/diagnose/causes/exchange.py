"""Replicas whose losses are made of what other replicas computed before the gradient.

Normalisation by statistics of all replicas and contrastive losses with gathered
negatives are such. What a shard gives alone is then no part of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distbench.compare.arrays.noise import Noise
from distbench.compare.nature.given import exchanges, makes_whole_exchanged
from distbench.compare.nature.grouping import Nature, find_nature
from distbench.compare.nature.met import goes_on_from_gradients
from distbench.diagnose.causes.explain import Explained, is_vague
from distbench.diagnose.clues.context import Context
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, WHOLE

OWN_LOSSES = (
    "every replica has the loss that its own shard gives on one device, and there "
    "these do not make up that of the global batch, so that is no measure; nor could "
    "their gradients be told, as the step asks for several of each variable"
)
"""Why nothing is a measure of a step that hides its gradients."""

OVERFLOWS = (
    "one device overflows in every step, and replicas, which have shares of the losses "
    "of their shards alone, do not, so no gradient is known that theirs could be held "
    "against; use more steps, or a smaller loss scale"
)
"""Why nothing is a measure of gradients that overflow on one device alone."""

UPDATED_BETWEEN = (
    "note: on one device the result depends on which examples are together in a batch, "
    "and a loss on gradients of all replicas, so loss and local gradients cannot be "
    "judged, only what follows from them"
)
"""What is known where a shard alone is updated otherwise than all together."""


def follows_updates(evidence: Evidence) -> bool:
    """Whether losses hold features of other replicas by way of gradients alone.

    Two networks that are updated in turn by hand are such: the second one's loss is
    made of what the sum of all gradients has left of the first one. Where a variable
    has several gradients, as in a climb before the step, the first ones are not seen.
    """
    is_seen = evidence.observed.notes.get("micro_steps", 1) == 1
    return is_seen and goes_on_from_gradients(evidence)


def is_joined(evidence: Evidence, noise: Noise) -> bool:
    """Whether shards make up the global batch, given what that exchanges, and else not.

    Counts over all replicas mostly scale what each makes of its own shard. Where soft
    targets follow from them, or a limit, a shard alone has another loss. One device
    tells: it gives its shards what the collectives of the global batch give.
    """
    is_known = exchanges(evidence, "data") and "exchanged" in evidence.probes
    if not is_known or evidence.reference.draws:
        return False
    nature = find_nature(evidence, noise)
    is_open = nature.grouped and not nature.lost
    return is_open and makes_whole_exchanged(evidence, noise)


def is_of_all(evidence: Evidence) -> bool:
    """Whether every replica's loss is made of what others computed, and no shard's."""
    return evidence.subject.joined or exchanges(evidence, "features")


def means_whole(evidence: Evidence, nature: Nature) -> bool:
    """Whether nothing but the global batch can be meant, and one device computes it.

    One device has other random numbers than the replicas, and rounds a narrow dtype in
    another way.
    """
    return is_of_all(evidence) and not (evidence.reference.draws or nature.lost)


def hides_gradients(evidence: Evidence) -> bool:
    """Whether no gradient of the replicas' own was seen.

    A step that asks for several of each variable, as for those of two tasks, tells of
    none of them that it is the replica's.
    """
    traces = evidence.reference, evidence.observed
    return not any(
        key.phase == "local_gradient" for trace in traces for key in trace.values
    )


def describe_own_statistic(evidence: Evidence, variable: str) -> str:
    """Why neither the global batch nor a shard is a measure of such losses."""
    if not is_of_all(evidence):
        return (
            f"'{variable}' is a statistic of the own examples, or a mean of such, with "
            "which one device does not get to what the replicas have to; nor could "
            "their gradients be told, as the step asks for several of each variable"
        )
    return (
        "every replica's loss is made of what the others computed, so the global batch "
        f"would be its measure, but '{variable}' is a statistic of the own examples, "
        "or a mean of such, with which one device does not get there; synchronise it "
        "(synchronized=True), or check the step without the exchange"
    )


def describe_exchange(context: Context) -> str:
    """Says so of losses or local gradients that no cause explains, or `""`."""
    is_first = context.phase in COMPUTED
    if not (is_first and is_of_all(context.evidence)):
        return ""
    if any(case.key.replica != WHOLE for case in context.cases):
        return ""
    return (
        "every replica's loss is made of what the others computed, so together they "
        "have to give what one device gives for the global batch, and they do not: "
        "look at what is exchanged before the gradient (means of uneven or squared "
        "values), how it is used (positions that count from the own first example), "
        "and what is taken of the own examples alone beside it (their statistics, or a "
        "count)"
    )


def join_factors(
    context: Context, causes: Sequence[Explained]
) -> tuple[Explained, ...]:
    """Take odd factors that some gradients nearly have for what the others have.

    A mistake in what is exchanged goes through all of a loss, and bends each gradient
    in a way of its own: of a few numbers that is near a factor.
    """
    near = [cause for cause in causes if is_vague(cause)]
    open_ones = [cause for cause in near if cause.code == "unexplained"]
    if not describe_exchange(context) or not open_ones:
        return tuple(causes)
    joined = replace(
        open_ones[0], cases=tuple(case for cause in near for case in cause.cases)
    )
    return (joined, *(cause for cause in causes if cause not in near))


def tell_lost_gradient(
    context: Context, causes: Sequence[Explained]
) -> tuple[Explained, ...]:
    """Say of gradients that nothing explains what it means that all losses are right.

    If the losses add up to L(θ) in every step, their gradients add up to dL/dθ, unless
    what came from other replicas is taken for a constant. Where a step differentiates
    several losses by the same variable, the one that it returns may be another; and
    where it rounds a narrow dtype, a loss may be wrong by less than that loses.

    Args:
        context: Wrong local gradients, where no loss is wrong.
        causes: What explains them so far.
    """
    steps = {case.key.step for case in context.cases}
    if (
        not (describe_exchange(context) and exchanges(context.evidence, "features"))
        or not any(map(is_vague, causes))
        or len(steps) < context.evidence.reference.steps
        or context.evidence.observed.notes.get("micro_steps", 1) != 1
        or context.evidence.probes.keys() & {"rounded-0"}
    ):
        return tuple(causes)
    lost = [cause for cause in causes if is_vague(cause)]
    told = replace(
        lost[0],
        code="unexplained",
        detail="the losses add up to that of the global batch, and their gradients not "
        "to its gradient: what a replica takes from others before the gradient is a "
        "constant to its tape",
        confidence=0.0,
        cases=tuple(case for cause in lost for case in cause.cases),
        replicas=None,
        ratio=None,
        advice="Take it by ReplicaContext.all_reduce or all_gather, whose gradient "
        "goes back to all replicas; that of merge_call or behind stop_gradient does "
        "not.",
    )
    return (told, *(cause for cause in causes if cause not in lost))
