"""Looks inside a step whose loss or gradients are wrong for no reason that is known.

What intermediate values have to be the global batch says. Where replicas are held
against their own shards, as under batch statistics, nobody does: nor where gradients of
all replicas lead to another loss. But where losses add up and gradients do not, all
losses have to be looked at to say which of both is meant.
"""

from __future__ import annotations

from dataclasses import replace

from distbench.checking.plan import Planned
from distbench.compare.intermediates import starts_right
from distbench.compare.met import goes_on_from_gradients
from distbench.diagnose.astray import describe_own
from distbench.diagnose.judgement import Judgement
from distbench.diagnose.readings import takes_shards
from distbench.errors import BadInputError, ClusterError
from distbench.evidence import Evidence
from distbench.observe import (
    Launch,
    observe_intermediates,
    observe_own_intermediates,
)
from distbench.scenario.choices import PIPELINE
from distbench.target import TargetRef
from distbench.trace import COMPUTED

_OPEN = ("unexplained", "scale-error")
"""Codes that name no cause: a value is wrong, or is so by a factor."""


def look_inside(
    target: TargetRef,
    item: Planned,
    evidence: Evidence,
    judgement: Judgement,
    launch: Launch,
) -> Evidence | None:
    """Run the step again in which losses or gradients go wrong, and look inside.

    Args:
        target: The subject.
        item: The scenario.
        evidence: What was seen of it.
        judgement: What it came to.
        launch: How tasks are started.

    Returns:
        The evidence with what was seen; None where there is no need, or no way.
    """
    scenario = item.scenario
    step = _find_open(judgement)
    if step is None or step < 0 or evidence.observed.replicas == 1:
        return None
    # In a free run a later step starts from what the cluster has come to.
    is_reached = evidence.tier != "free" or step == 0
    is_other = scenario.restore_from or scenario.faults or scenario.in_flight > 1
    is_known = evidence.measure.shards_known or evidence.subject.compiled
    if not is_reached or is_other or is_known:
        return None
    if judgement.doubtful is None and takes_shards(evidence):
        return None
    try:
        inside = observe_intermediates(target, scenario, item.spec, step, launch)
    except (BadInputError, ClusterError) as error:
        launch.log(f"A look inside of {scenario.id} failed: {error}")
        return None
    if goes_on_from_gradients(evidence) and not starts_right(inside, step):
        return None
    return replace(evidence, inside=inside)


def _find_open(judgement: Judgement) -> int | None:
    """The first step of which a look inside may tell more."""
    if judgement.doubtful is not None:
        return judgement.doubtful
    found = (f for f in judgement.findings if f.code in _OPEN and f.phase in COMPUTED)
    return min((finding.step for finding in found), default=None)


def tell_own(
    target: TargetRef,
    item: Planned,
    evidence: Evidence,
    launch: Launch,
) -> str:
    """A note of where a program takes what is of the own shard alone.

    Empty where that does not show in the first step, or may be random numbers; see
    `look_inside` for the arguments.
    """
    scenario = item.scenario
    is_drawn = bool(evidence.reference.notes.get("draws"))
    is_other = scenario.faults or scenario.restore_from
    # Of a pipeline one device trains on what the replicas got.
    is_read = scenario.workload == PIPELINE
    if is_drawn or is_other or is_read or evidence.subject.compiled:
        return ""
    try:
        if evidence.observed.notes.get("exchange"):
            inside = observe_intermediates(target, scenario, item.spec, 0, launch)
        else:
            inside = observe_own_intermediates(target, scenario, item.spec, launch)
    except (BadInputError, ClusterError) as error:
        launch.log(f"A look inside of {scenario.id} failed: {error}")
        return ""
    return describe_own(inside, 0)
