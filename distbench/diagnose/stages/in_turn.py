"""Steps that update several times: what is computed after a wrong update follows it.

A discriminator is updated before its generator's loss is computed. If that update is
wrong, so are the generator's gradients, and the loss of both that the step returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distbench.diagnose.causes.exchange import follows_updates
from distbench.diagnose.causes.explain import Explained, is_vague
from distbench.diagnose.stages.links import Chain
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, GRADIENTS, PHASES, Phase, TraceKey
from distbench.verdict import Finding


def leave_out_later(causes: Sequence[Explained], chain: Chain) -> tuple[Explained, ...]:
    """Without what nothing explains, and an earlier update of the same step may have.

    What has a cause of its own is kept: one wrong loss can feed several updates.
    """
    led = list_later(causes, chain)
    kept = []
    for cause in causes:
        cases = cause.cases
        if is_vague(cause):
            cases = tuple(case for case in cases if case.key not in led)
        if cases:
            kept.append(replace(cause, cases=cases))
    return tuple(kept)


def list_later(causes: Sequence[Explained], chain: Chain) -> set[TraceKey]:
    """Where nothing explains what is wrong, after a wrong update of the same step."""
    first = _find_first(chain)
    last = _find_last(chain)

    def follows(key: TraceKey) -> bool:
        if key.step not in first:
            return False
        call, phase = first[key.step]
        if key.phase == "loss":
            # It is returned after the last update, and is right where the first wrong
            # value is not made of it.
            return phase != "local_gradient" and call < last[key.step]
        return call < key.call

    vague = (case.key for cause in causes if is_vague(cause) for case in cause.cases)
    return {key for key in vague if follows(key)}


def leave_out_updated(
    evidence: Evidence, causes: Sequence[Explained]
) -> tuple[Explained, ...]:
    """Without what nothing explains where another cause is told of the same step.

    Of steps that update by hand between two of their losses: in which order they do is
    not known, and what is made of a wrong update is as wrong.
    """
    told = [cause for cause in causes if not is_vague(cause)]
    if not told or not follows_updates(evidence):
        return tuple(causes)
    first = min(case.key.step for cause in told for case in cause.cases)
    return tuple(
        cause
        for cause in causes
        if cause in told or min(case.key.step for case in cause.cases) < first
    )


def leave_out_led_losses(evidence: Evidence, findings: list[Finding]) -> list[Finding]:
    """Without losses that are wrong by an update of the same step, which is told.

    Of steps that update by hand between two of their losses.
    """
    if not follows_updates(evidence):
        return findings
    told = {(f.step, f.code) for f in findings if f.phase not in COMPUTED}
    return [
        f for f in findings if f.phase not in COMPUTED or (f.step, f.code) not in told
    ]


def _find_first(chain: Chain) -> dict[int, tuple[int, Phase]]:
    """The first call with a wrong gradient, and its phase, by step."""
    found: dict[int, tuple[int, Phase]] = {}
    for link in chain.broken:
        c = link.comparison
        if c.phase in GRADIENTS:
            place = (c.call, c.phase)
            known = found.setdefault(c.step, place)
            found[c.step] = min(known, place, key=lambda p: (p[0], PHASES.index(p[1])))
    return found


def _find_last(chain: Chain) -> dict[int, int]:
    """The last call by step."""
    found: dict[int, int] = {}
    for link in chain.settled:
        c = link.comparison
        if c.phase in GRADIENTS:
            found[c.step] = max(found.get(c.step, 0), c.call)
    return found
