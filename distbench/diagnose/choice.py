"""Chooses among the readings of one evidence: which of them says what is wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from distbench.compare.arrays.noise import Noise
from distbench.compare.arrays.pair import SHARD
from distbench.compare.nature.given import exchanges
from distbench.compare.nature.lost import measure_lost
from distbench.diagnose.causes.exchange import is_joined
from distbench.diagnose.causes.explain import GENERIC, is_vague, tells_all
from distbench.diagnose.judgement import Judgement
from distbench.diagnose.readings.changed import CLIP, tell_changed
from distbench.diagnose.readings.reading import Reading, list_readings
from distbench.diagnose.readings.weighed import Weighed
from distbench.evidence import Evidence
from distbench.trace import COMPUTED
from distbench.verdict import Status

_SCALED = "loss-not-scaled", "loss-scaled-twice"
"""Causes of gradients that may as well be of something done to them."""


def judge_best(evidence: Evidence, noise: Noise) -> Judgement:
    """What is wrong by the reading that tells most.

    Args:
        evidence: What was observed and expected.
        noise: Of the single-device run.
    """
    whole = Weighed(Reading(evidence=evidence), noise)
    step = whole.wrong_gradients if whole.has_right_losses else None
    if step is None or measure_lost(evidence):  # gradients round more than losses do
        return _choose(evidence, noise, whole)
    changed = tell_changed(evidence, noise, step, whole)
    if changed is not None:
        return changed
    judgement = _choose(evidence, noise, whole)
    is_doubtful = evidence.inside is None and _leaves_gradients(evidence, judgement)
    return replace(judgement, doubtful=step) if is_doubtful else judgement


def _leaves_gradients(evidence: Evidence, judgement: Judgement) -> bool:
    """Whether what shards alone make of their gradients is taken for meant, or a scale.

    A look inside tells whether it is their losses that are not those of the whole.
    """
    if judgement.status is Status.PASS:
        return judgement.references.get("local_gradient", SHARD) == SHARD
    first = next(iter(judgement.findings), None)
    if first is None or first.phase != "local_gradient":
        return first is not None and first.phase == "loss"
    is_once = evidence.observed.notes.get("micro_steps", 1) in (0, 1)
    return first.code in _SCALED or (first.code == CLIP and not is_once)


def _choose(evidence: Evidence, noise: Noise, whole: Weighed) -> Judgement:
    judgement = whole.explain() if whole.holds else None
    if judgement is not None and not _is_open(judgement):
        return judgement
    if is_joined(evidence, noise):
        subject = replace(evidence.subject, joined=True)
        evidence = replace(evidence, subject=subject)
        whole, judgement = Weighed(Reading(evidence=evidence), noise), None
    found = _find_told(list_readings(evidence, noise), noise)
    if found is not None and (found[0].settles or _ends(*found)):
        return found[1]
    if found is not None and whole.has_right_losses and whole.refutes(found[1]):
        return judgement or whole.explain()
    is_measure = whole.has_right_losses or exchanges(evidence, "data")
    if found is not None and not is_measure and _says_all(found[1], whole):
        # Nothing explains what is wrong with such a whole, and of a large model to find
        # that out takes longer than all the rest.
        return found[1]
    judgement = judgement or whole.explain()
    if found is None or not _is_open(judgement) or _is_by_all(evidence, judgement):
        return judgement
    reading, told = found
    is_narrow = reading.evidence.measure.lost > 0
    if is_narrow and _tells(reading, told) and _is_beyond(judgement, told):
        return told  # it is no more than rounding
    # Where both find the same, the whole batch says better which replica is wrong.
    is_better = _says_more(judgement, told, whole) or _find_alike(judgement, told)
    return judgement if is_better else told


def _find_told(
    readings: Iterable[Reading], noise: Noise
) -> tuple[Reading, Judgement] | None:
    """What the other readings come to.

    The first that holds all of it for right; else the first that says what is wrong, or
    the one that takes no first values for known. To explain one takes long, so nobody
    asks those that could not be it any more.
    """
    found: tuple[Reading, Judgement] | None = None
    for reading in readings:
        if found is not None and reading.is_last:
            continue
        weighed = Weighed(reading, reading.noise or noise)
        other = weighed.explain()
        if _ends(reading, other):
            return reading, other
        # What noise hides by the only measure is no fault that another could tell.
        is_hidden = reading.settles and other.status is Status.UNDECIDABLE
        is_told = is_hidden or _tells(reading, other) or not reading.first_known
        if found is None and is_told:
            found = reading, other
            if not is_hidden and weighed.has_right_parts:
                break  # what is wrong behind them is no less so behind their sums
    return found


def _ends(reading: Reading, judgement: Judgement) -> bool:
    """Whether nobody has to be asked any more."""
    if reading.settles and judgement.status is Status.FAIL:
        return True
    return reading.first_known and judgement.status is Status.PASS


def _is_open(judgement: Judgement) -> bool:
    """Whether another reading of the same numbers may come to something else."""
    return judgement.status in (Status.FAIL, Status.UNDECIDABLE)


def _says_all(judgement: Judgement, whole: Weighed) -> bool:
    """Whether the global batch, where it is no measure, could add nothing to it.

    What it says of a step in which its loss is wrong begins with that.
    """
    if judgement.status is not Status.FAIL:
        return True
    first = judgement.findings[0]
    is_later = first.phase not in COMPUTED and whole.has_wrong_loss(first.step)
    return is_later and _names_all(judgement)


def _says_more(judgement: Judgement, other: Judgement, whole: Weighed) -> bool:
    """Whether the global batch names causes, and shards alone leave something open."""
    if whole.has_right_losses and _is_clear(judgement) and not _names_cause(other):
        return True
    both_fail = judgement.status is other.status is Status.FAIL
    return both_fail and _names_all(judgement) and not _names_all(other)


def _names_all(judgement: Judgement) -> bool:
    """Whether its causes leave nothing of all that is wrong."""
    return all(
        tells_all(finding) and finding.code not in GENERIC
        for finding in judgement.findings
    )


def _is_clear(judgement: Judgement) -> bool:
    """Whether one cause explains what is wrong after the losses whole."""
    if judgement.status is not Status.FAIL:
        return False
    first = judgement.findings[0]
    is_whole = tells_all(first) and first.phase != "loss"
    return is_whole and _names_cause(judgement)


def _is_beyond(judgement: Judgement, other: Judgement) -> bool:
    """Whether the global batch has gradients wrong that shards alone find right.

    In a narrow dtype its sum is rounded in another way than theirs.
    """
    of_gradients = any(f.phase == "local_gradient" for f in judgement.findings)
    return of_gradients and all(f.phase not in COMPUTED for f in other.findings)


def _is_by_all(evidence: Evidence, judgement: Judgement) -> bool:
    """Whether the replicas count over all, and a known mistake in that is all of it.

    A shard alone counts something else; nor does one odd factor prove anything.
    """
    if judgement.status is not Status.FAIL or not exchanges(evidence, "data"):
        return False
    first = judgement.findings[0]
    is_odd = first.code == "scale-error"
    return tells_all(first) and _names_cause(judgement) and not is_odd


def _find_alike(judgement: Judgement, other: Judgement) -> bool:
    """Whether two judgements have the same first finding, but for its replicas."""
    first, second = (
        [(f.code, f.phase, f.step, f.variables) for f in found.findings[:1]]
        for found in (judgement, other)
    )
    return judgement.status is other.status and first == second


def _names_cause(judgement: Judgement) -> bool:
    """Whether it says more than that something is wrong."""
    return any(finding.code not in GENERIC for finding in judgement.findings[:1])


def _tells(reading: Reading, judgement: Judgement) -> bool:
    """Whether another reading says what is wrong, where none of them passes.

    If the global batch is no measure of a program, its shards are, unless even the
    first wrong value has no known cause. Their sums alone say when a run is right.
    """
    if judgement.status is not Status.FAIL or reading.evidence.measure.summed:
        return False
    first = judgement.findings[0]
    if first.phase not in COMPUTED:
        return True
    # One odd factor explains all of the error, or nothing does.
    return not is_vague(first)
