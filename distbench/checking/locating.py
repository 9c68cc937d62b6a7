"""Looks inside a step that is wrong somewhere for no reason that is known.

What intermediate values have to be the global batch says. Where replicas are held
against their own shards, as under batch statistics, nobody does: nor where gradients of
all replicas lead to another loss. But where losses add up and gradients do not, all
losses have to be looked at to say which of both is meant. And where a run passes by its
shards, one device alone shows what is taken of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from distbench.checking.attempt import attempt
from distbench.checking.plan import Planned
from distbench.compare.inside.intermediates import limits_addends, starts_right
from distbench.compare.nature.met import goes_on_from_gradients
from distbench.diagnose.clues.astray import describe_own
from distbench.diagnose.judge import judge
from distbench.diagnose.judgement import Judgement
from distbench.diagnose.readings.reading import takes_shards
from distbench.evidence import Evidence, Inside
from distbench.observe import Launch, observe_intermediates
from distbench.scenario.choices import PIPELINE
from distbench.target import TargetRef
from distbench.trace import COMPUTED
from distbench.verdict import Finding, Status

Look = Callable[..., Inside]
"""Runs a scenario with a look inside; see `observe_intermediates`."""
_OF_EXAMPLES = "statistics-not-synchronized"
_OPEN, _FACTOR, _APART = "unexplained", "scale-error", "replicas-diverged"
"""Codes that may name no cause: a value is wrong, is so by a factor, or is another one
on each replica."""


class Looking:
    """Runs steps once more to look inside, where that tells more than is known.

    Args:
        target: The subject.
        launch: How tasks are started.
    """

    def __init__(self, target: TargetRef, launch: Launch) -> None:
        self._target = target
        self._launch = launch
        self._own: dict[str, Inside | None] = {}

    def judge(self, item: Planned, evidence: Evidence, found: Judgement) -> Judgement:
        """What evidence comes to with what a look inside tells.

        Args:
            item: The scenario.
            evidence: What was seen of it.
            found: What that came to.
        """
        inside = self._look(item, evidence, found)
        judgement = found if inside is None else judge(inside)
        if judgement.status is Status.FAIL or not judgement.of_own:
            return judgement
        own = self._see_own(item, evidence)
        if own is None:
            return judgement
        if limits_addends(own, 0):
            judged = self._hold_against_all(item, evidence)
            if judged is not None:
                return judged
        notes = filter(None, (judgement.message, describe_own(own)))
        return replace(judgement, message="; ".join(notes))

    def _hold_against_all(self, item: Planned, evidence: Evidence) -> Judgement | None:
        """What evidence comes to by the global batch; None if that is not wrong."""
        look = partial(observe_intermediates, last_step=0)
        inside = self._observe(item, look)
        if inside is None or not limits_addends(inside, 0):
            return None
        subject = replace(evidence.subject, joined=True)
        judged = judge(replace(evidence, inside=inside, subject=subject))
        return judged if judged.status is Status.FAIL else None

    def _look(
        self, item: Planned, evidence: Evidence, judgement: Judgement
    ) -> Evidence | None:
        """The evidence with what was seen; None where there is no need, or no way."""
        scenario = item.scenario
        is_once = evidence.observed.notes.get("micro_steps", 1) in (0, 1)
        open_ones = list(_list_open(judgement, is_once))
        if not (is_once or evidence.sees_gradients):
            # What state shows of gradients that nobody saw has other causes as well,
            # and what the examples lead besides shows nothing of them.
            found = [f for f in judgement.findings if f.code != _OF_EXAMPLES]
            open_ones = [f for f in found if not f.warning]
        step = _find_open(judgement, open_ones)
        if step is None or step < 0 or evidence.observed.replicas == 1:
            return None
        # In a free run a later step starts from what the cluster has come to.
        is_reached = evidence.tier != "free" or step == 0
        is_other = scenario.restore_from or scenario.faults or scenario.in_flight > 1
        of_steps = _is_after_gradients(judgement, open_ones)
        is_known = evidence.measure.shards_known and not of_steps
        if not is_reached or is_other or is_known or evidence.subject.compiled:
            return None
        if judgement.doubtful is None and takes_shards(evidence):
            return None
        if not is_once and evidence.tier != "free":
            step = scenario.steps - 1  # weights of micro-steps are those of all steps
        look = partial(observe_intermediates, last_step=step, of_steps=of_steps)
        inside = self._observe(item, look)
        if inside is None:
            return None
        if goes_on_from_gradients(evidence) and not starts_right(inside, step):
            return None
        return replace(evidence, inside=inside)

    def _see_own(self, item: Planned, evidence: Evidence) -> Inside | None:
        """Where a program takes what is of the own shard alone, in the first step.

        Of what replicas exchange one device has nothing to show, whatever the cluster.
        """
        if not evidence.observed.notes.get("exchange"):
            return evidence.inside_own
        workload = item.scenario.workload
        if workload not in self._own and _shows_own(item, evidence):
            look = partial(observe_intermediates, last_step=0)
            self._own[workload] = self._observe(item, look)
        return self._own.get(workload)

    def _observe(self, item: Planned, look: Look) -> Inside | None:
        scenario, launch = item.scenario, self._launch
        return attempt(
            launch,
            f"A look inside of {scenario.id}",
            lambda: look(self._target, scenario, item.spec, launch=launch),
        )


def _shows_own(item: Planned, evidence: Evidence) -> bool:
    """Whether a look at replicas may show what is taken of the own shard."""
    scenario = item.scenario
    is_drawn = bool(evidence.reference.draws)
    is_other = bool(scenario.faults or scenario.restore_from)
    # Of a pipeline one device trains on what the replicas got.
    is_read = scenario.workload == PIPELINE
    return not (is_drawn or is_other or is_read or evidence.subject.compiled)


def _find_open(judgement: Judgement, open_ones: Sequence[Finding]) -> int | None:
    """The first step of which a look inside may tell more."""
    if judgement.doubtful is not None:
        return judgement.doubtful
    return min((finding.step for finding in open_ones), default=None)


def _is_after_gradients(judgement: Judgement, open_ones: Sequence[Finding]) -> bool:
    """Whether what is open is made of gradients, and no loss or gradient itself."""
    is_after = all(finding.phase not in COMPUTED for finding in open_ones)
    return judgement.doubtful is None and bool(open_ones) and is_after


def _list_open(judgement: Judgement, is_once: bool) -> Iterator[Finding]:
    """Findings of which a look inside may tell more.

    Of a sum that is off by a factor nobody has to know where that begins. Where each
    replica has another sum, a look tells which micro-steps are in it.

    Args:
        judgement: What was found.
        is_once: Whether a step takes one gradient of each variable.
    """
    for finding in judgement.findings:
        is_factor = finding.code == _FACTOR and finding.phase in COMPUTED
        is_apart = finding.code == _APART and finding.confidence == 0
        if finding.code == _OPEN or is_factor or (is_apart and not is_once):
            yield finding
