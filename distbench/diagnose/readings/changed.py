"""What replicas do to gradients whose losses, or micro-steps, add up."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

from distbench.compare.arrays.noise import Noise
from distbench.compare.inside.given import gradients_add_up
from distbench.compare.inside.intermediates import losses_add_up
from distbench.compare.inside.of_micro_steps import take_sums
from distbench.diagnose.causes.explain import tells_all
from distbench.diagnose.clues.hypothesis import NONLINEAR
from distbench.diagnose.hypotheses.own_spreads import OF_OWN
from distbench.diagnose.judgement import Judgement
from distbench.diagnose.readings.reading import Reading
from distbench.diagnose.readings.weighed import Weighed
from distbench.evidence import Evidence, Inside
from distbench.trace import COMPUTED
from distbench.verdict import Status

CLIP = "clip-before-reduction"


def tell_changed(
    evidence: Evidence, noise: Noise, step: int, whole: Weighed
) -> Judgement | None:
    """What comes of it by the global batch; None where nobody looked, or of a loss.

    Args:
        evidence: What was seen, with a look inside of the step.
        noise: How far correct runs are apart.
        step: The first in which gradients are wrong.
        whole: The evidence, held against the global batch.
    """
    inside = evidence.inside
    if inside is None or not losses_add_up(inside, step):
        return None
    told = whole.explain()
    code = told.findings[0].code if told.findings else ""
    is_named = code in (NONLINEAR, CLIP)
    seen = _list_seen(inside, step) if is_named else []
    if seen:
        summed = take_sums(evidence, inside, range(step, seen[-1] + 1))
        named = Weighed(Reading(evidence=summed), noise).explain()
        if _is_known(named):
            return _with_rest(named, told, seen[-1], inside.observed.steps)
    # Beside what is not linear there may be mere means, which are told first.
    found = {(finding.phase, finding.code) for finding in told.findings}
    is_changed = any(("reduced_gradient", c) in found for c in (NONLINEAR, OF_OWN))
    return told if is_changed else None


def _list_seen(inside: Inside, step: int) -> list[int]:
    """The steps from one on in which gradients add up."""
    steps = range(step, inside.observed.steps)
    return [*takewhile(lambda each: gradients_add_up(inside, each), steps)]


def _with_rest(
    named: Judgement, told: Judgement, last: int, looked_into: int
) -> Judgement:
    """With what the global batch says of all steps after one.

    Args:
        named: What is done to gradients that add up.
        told: What the global batch says of all steps.
        last: The last step in which they do. What begins after it may be why they do
            so no more.
        looked_into: How many steps somebody looked into.
    """
    rest = tuple(one for one in told.compared if one.step > last)
    is_ended = last + 1 < looked_into
    begun = tuple(f for f in told.findings if is_ended and f.step > last)
    return replace(
        named,
        findings=(*named.findings, *begun),
        checked=named.checked + len(rest),
        compared=(*named.compared, *rest),
    )


def _is_known(judgement: Judgement) -> bool:
    """Whether causes beyond the gradients tell all that is wrong."""
    return judgement.status is Status.FAIL and all(
        finding.phase not in COMPUTED and tells_all(finding)
        for finding in judgement.findings
    )
