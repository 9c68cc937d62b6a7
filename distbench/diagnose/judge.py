"""Judges one tier of one scenario: status and findings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import cast

import numpy as np

from distbench.compare.comparison import (
    Comparison,
    Judged,
    compare_evidence,
    find_wrong_losses,
)
from distbench.compare.nature import find_row_sensitive
from distbench.compare.noise import Noise, measure_noise
from distbench.compare.vacuity import find_uncompared, find_weak_phases
from distbench.diagnose.examples import count_examples
from distbench.diagnose.exchange import exchanges
from distbench.diagnose.explain import is_vague
from distbench.diagnose.judgement import Judgement
from distbench.diagnose.links import Chain, judge_chain
from distbench.diagnose.misplaced import find_misplaced
from distbench.diagnose.outcome import name_outcomes
from distbench.diagnose.owners import name_owners
from distbench.diagnose.pipelines import describe_pipeline
from distbench.diagnose.randomness import find_shared_randomness
from distbench.diagnose.rank import ALL
from distbench.diagnose.readings import Reading, list_readings, repeats
from distbench.diagnose.stages import explain_chain
from distbench.diagnose.turns import leave_out_turns
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, PHASES, Trace
from distbench.verdict import Finding, Status, Worst

_GENERIC = ("unexplained", "replicas-diverged")
"""Codes that say no more than that something is wrong."""


def judge(evidence: Evidence) -> Judgement:
    """Compare everything, find where the chain breaks first, and say why."""
    if evidence.tier == "exact" and not evidence.reference.notes.get("exact_proved"):
        return Judgement(
            status=Status.UNDECIDABLE,
            message="it was not proved that every sum of this data is representable, "
            "so no tolerance of 0 can be asked for; use the bounded tier",
        )
    with np.errstate(all="ignore"):
        evidence = name_owners(evidence)
        noise = measure_noise(evidence)
        judgement = _judge_best(evidence, noise)
        rows = find_row_sensitive(evidence)
        found = (find_misplaced(evidence), find_shared_randomness(evidence, noise))
    judgement = _add(judgement, *count_examples(evidence.examples))
    for finding in filter(None, found):
        judgement = _add(judgement, finding)
    notes = [
        judgement.message,
        _note_sizes(evidence.reference),
        _note_left_out(evidence.reference),
        *describe_pipeline(evidence.examples),
    ]
    if rows:
        notes.append(
            f"note: the rule of '{rows[0]}' gives another result if the repeated rows "
            "of a sparse gradient are added up before; add them up in the rule itself"
        )
    return replace(judgement, message="; ".join(filter(None, notes)))


def _note_sizes(reference: Trace) -> str:
    """Which steps have a batch of another size than the first one."""
    places = cast(Sequence[int], reference.notes.get("places", ()))
    told = []
    for step, shards in reference.resized.items():
        if step >= reference.steps:
            continue  # one that was trained before a restore
        place = places[step] if step < len(places) else step
        which = f" (batch {place} of the epoch)" if place != step else ""
        told.append(f"step {step}{which} has {' + '.join(map(str, shards))}")
    if not told:
        return ""
    usual = " + ".join(map(str, reference.shards))
    return f"note: {', '.join(told)} examples, in place of {usual}"


def _note_left_out(reference: Trace) -> str:
    """Which examples of a Keras model no replica gets."""
    counts = cast(Sequence[int], reference.notes.get("left_out", ()))
    total = sum(counts)
    if not total:
        return ""
    examples = sum(sum(reference.get_shards(step)) for step in range(len(counts)))
    return (
        f"note: {total} of {total + examples} examples are left out, so that shards "
        "are even; fit counts uneven ones alike, which --split shows"
    )


def _add(judgement: Judgement, *findings: Finding) -> Judgement:
    """With findings about what the step was given, before those about what it did."""
    faults = tuple(finding for finding in findings if not finding.warning)
    warnings = tuple(finding for finding in findings if finding.warning)
    return replace(
        judgement,
        status=Status.FAIL if faults else judgement.status,
        findings=(*faults, *judgement.findings, *warnings),
    )


def _judge_best(evidence: Evidence, noise: Noise) -> Judgement:
    whole = _Weighed(Reading(evidence=evidence), noise)
    judgement = whole.explain() if whole.holds else None
    if judgement is not None and not _is_open(judgement):
        return judgement
    found = _find_told(list_readings(evidence, noise), noise)
    if found is not None and found[1].status is Status.PASS and found[0].first_known:
        return found[1]
    is_measure = whole.has_right_losses or exchanges(evidence, "data")
    if found is not None and not is_measure and _says_all(found[1], whole):
        # Nothing explains what is wrong with such a whole, and of a large model to find
        # that out takes longer than all the rest.
        return found[1]
    judgement = judgement or whole.explain()
    if found is None or not _is_open(judgement) or _is_by_all(evidence, judgement):
        return judgement
    reading, told = found
    if _tells(reading, told) and reading.evidence.lost and _is_beyond(judgement, told):
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
        if found is not None and not reading.first_known:
            continue
        weighed = _Weighed(reading, noise)
        other = weighed.explain()
        if reading.first_known and other.status is Status.PASS:
            return reading, other
        if found is None and (_tells(reading, other) or not reading.first_known):
            found = reading, other
            if weighed.has_right_parts:
                break  # what is wrong behind them is no less so behind their sums
    return found


def _is_open(judgement: Judgement) -> bool:
    """Whether another reading of the same numbers may come to something else."""
    return judgement.status in (Status.FAIL, Status.UNDECIDABLE)


def _says_all(judgement: Judgement, whole: _Weighed) -> bool:
    """Whether the global batch, where it is no measure, could add nothing to it.

    What it says of a step in which its loss is wrong begins with that.
    """
    if judgement.status is not Status.FAIL:
        return True
    first = judgement.findings[0]
    is_later = first.phase not in COMPUTED and whole.has_wrong_loss(first.step)
    return is_later and _names_all(judgement)


def _says_more(judgement: Judgement, other: Judgement, whole: _Weighed) -> bool:
    """Whether the global batch names causes, and shards alone leave something open."""
    if whole.has_right_losses and _is_clear(judgement) and not _names_cause(other):
        return True
    both_fail = judgement.status is other.status is Status.FAIL
    return both_fail and _names_all(judgement) and not _names_all(other)


def _names_all(judgement: Judgement) -> bool:
    """Whether its causes leave nothing of all that is wrong."""
    return all(
        finding.confidence >= ALL and finding.code not in _GENERIC
        for finding in judgement.findings
    )


def _is_clear(judgement: Judgement) -> bool:
    """Whether one cause explains what is wrong after the losses whole."""
    if judgement.status is not Status.FAIL:
        return False
    first = judgement.findings[0]
    is_whole = first.confidence >= ALL and first.phase != "loss"
    return is_whole and _names_cause(judgement)


def _is_beyond(judgement: Judgement, other: Judgement) -> bool:
    """Whether the global batch has gradients wrong that shards alone find right.

    In a narrow dtype its sum is rounded in another way than theirs.
    """
    of_gradients = judgement.findings[0].phase == "local_gradient"
    return of_gradients and other.findings[0].phase not in COMPUTED


def _is_by_all(evidence: Evidence, judgement: Judgement) -> bool:
    """Whether the replicas count over all, and a known mistake in that is all of it.

    A shard alone counts something else; nor does one odd factor prove anything.
    """
    if judgement.status is not Status.FAIL or not exchanges(evidence, "data"):
        return False
    first = judgement.findings[0]
    is_odd = first.code == "scale-error"
    return first.confidence >= ALL and _names_cause(judgement) and not is_odd


def _find_alike(judgement: Judgement, other: Judgement) -> bool:
    """Whether two judgements have the same first finding, but for its replicas."""
    first, second = (
        [(f.code, f.phase, f.step, f.variables) for f in found.findings[:1]]
        for found in (judgement, other)
    )
    return judgement.status is other.status and first == second


def _names_cause(judgement: Judgement) -> bool:
    """Whether it says more than that something is wrong."""
    return any(finding.code not in _GENERIC for finding in judgement.findings[:1])


def _tells(reading: Reading, judgement: Judgement) -> bool:
    """Whether another reading says what is wrong, where none of them passes.

    If the global batch is no measure of a program, its shards are, unless even the
    first wrong value has no known cause.
    """
    if judgement.status is not Status.FAIL or not reading.decides:
        return False
    first = judgement.findings[0]
    if first.phase not in COMPUTED:
        return True
    # One odd factor explains all of the error, or nothing does.
    return not is_vague(first)


class _Weighed:
    """A reading whose numbers are compared, and explained, as far as that is asked.

    Args:
        reading: What is held against what.
        noise: How far correct runs are apart.
    """

    def __init__(self, reading: Reading, noise: Noise) -> None:
        self._reading = reading
        self._noise = noise

    @cached_property
    def _lost(self) -> frozenset[int]:
        """Steps in which a loss is wrong whatever else is: nothing undoes it."""
        evidence = self._reading.evidence
        if evidence.tier == "free" or evidence.turns is not None:
            return frozenset()
        return find_wrong_losses(evidence, self._noise)

    @cached_property
    def _judged(self) -> tuple[Judged, ...]:
        evidence = self._reading.evidence
        return leave_out_turns(compare_evidence(evidence, self._noise), evidence)

    @cached_property
    def _chain(self) -> Chain:
        evidence = self._reading.evidence
        infos = {v.path: v for v in evidence.observed.variables}
        return judge_chain(self._judged, infos, free=evidence.tier == "free")

    @property
    def holds(self) -> bool:
        """Whether there is nothing to explain.

        Losses come first: to compare all of a large model takes long, and as long as
        nobody asks why they are wrong it is not needed.
        """
        return not (self._lost or self._chain.broken or self._chain.apart)

    @property
    def has_right_parts(self) -> bool:
        """Whether losses and gradients of all replicas are what they should be."""
        chain = self._chain
        wrong = (*chain.broken, *chain.forgiven, *chain.undecided, *chain.following)
        return not any(link.comparison.phase in COMPUTED for link in wrong)

    def has_wrong_loss(self, step: int) -> bool:
        """Whether the replicas' losses of a step do not make up what they should."""
        return step in self._lost or step in self._wrong_losses

    @property
    def _wrong_losses(self) -> set[int]:
        found = [link.comparison for link in self._chain.broken]
        return {c.step for c in found if c.phase == "loss"}

    @property
    def has_right_losses(self) -> bool:
        """Whether the replicas' losses make up that of the global batch.

        They would not if the grouping of the examples mattered: however shards alone
        come out, the global batch is then the measure.
        """
        if self._lost or self._wrong_losses:
            return False
        return "loss" in _name_references(self._chain)

    def explain(self) -> Judgement:
        """Say why it is wrong, where it is."""
        evidence, judged, chain = self._reading.evidence, self._judged, self._chain
        findings = name_outcomes(explain_chain(evidence, chain), judged, evidence)
        status, message = _decide(judged, chain, findings, self._reading)
        return Judgement(
            status=status,
            findings=findings,
            checked=len(judged),
            worst=_find_worst(chain),
            references=_name_references(chain),
            message=message,
            compared=tuple(item.comparison for item in judged),
        )


def _decide(
    judged: Sequence[Judged],
    chain: Chain,
    findings: Sequence[Finding],
    reading: Reading,
) -> tuple[Status, str]:
    if any(not finding.warning for finding in findings):
        return Status.FAIL, ""
    notes = [f"warning: {finding.code}" for finding in findings]
    comparisons = [item.comparison for item in judged]
    texts = (
        reading.note,
        _note_reduction(reading, comparisons),
        _note_forgiven(chain),
        _note_start(reading.evidence),
        _note_compiled(reading.evidence),
    )
    notes += [text for text in texts if text]
    weak = find_weak_phases(comparisons, first_known=reading.first_known)
    if weak and not repeats(reading.evidence):
        rest = find_weak_phases(comparisons, first_known=False)
        if not rest and not any(strength == "empty" for _, strength in weak):
            names = ", ".join(name for name, _ in weak)
            notes.append(
                "note: the step draws random numbers, and their scatter on one device "
                f"hides errors of {names}; what follows from them was checked"
            )
            weak = ()
    if chain.undecided:
        return Status.UNDECIDABLE, "; ".join([*notes, _note_undecided(chain)])
    if not findings and (lost := find_uncompared(reading.evidence, comparisons)):
        return Status.VACUOUS, (
            f"'{lost[0]}' was trained, and compared with nothing: one device has no "
            "variable of that name; name variables alike on both"
        )
    hidden = [name for name, strength in weak if strength == "hidden"]
    empty = [name for name, strength in weak if strength == "empty"]
    if empty and not findings:
        return Status.VACUOUS, (
            f"no comparison of {', '.join(empty)} could have failed: with an example "
            "or a replica lost the numbers would be the same; use data with gradients "
            "that are not 0"
        )
    if hidden and not findings:
        return Status.UNDECIDABLE, (
            f"in {', '.join(hidden)} the noise of correct runs is as large as one lost "
            "example or replica; use fewer examples or a wider dtype"
        )
    if reading.undecided:
        return Status.UNDECIDABLE, "; ".join([*notes, reading.undecided])
    return Status.PASS, "; ".join(notes)


def _note_reduction(reading: Reading, comparisons: Sequence[Comparison]) -> str:
    """Says so where neither gradients nor what they are added up to can be judged."""
    seen = reading.evidence.observed.select(phase="reduced_gradient")
    is_compared = any(c.phase == "reduced_gradient" for c in comparisons)
    if reading.first_known or is_compared or next(seen, None) is None:
        return ""
    return (
        "note: the reduction was not compared either, since the step makes something "
        "else of its gradients than a multiple before it, as by a clip"
    )


def _note_compiled(evidence: Evidence) -> str:
    if not evidence.compiled:
        return ""
    return (
        "note: XLA compiles the step as a whole, so what it leaves was compared and "
        "nothing on the way there; --jit off runs it without"
    )


def _note_start(evidence: Evidence) -> str:
    if not evidence.drawn_anew:
        return ""
    return (
        f"note: '{evidence.drawn_anew[0]}' starts from other values in every run, "
        "whatever the seed; the cluster was given those of one device"
    )


def _note_forgiven(chain: Chain) -> str:
    if not chain.forgiven:
        return ""
    first = chain.forgiven[0].comparison
    ratio = "" if first.ratio is None else f" (ratio {first.ratio:.6g})"
    return (
        f"note: {first.phase} of '{first.variable}' deviates{ratio}, "
        "and a later phase undoes it"
    )


def _note_undecided(chain: Chain) -> str:
    first = chain.undecided[0].comparison
    ratio = "" if first.ratio is None else f" (ratio {first.ratio:.6g})"
    return (
        f"{first.phase} of '{first.variable}' is not the {first.against}{ratio}, and "
        "in a free run the noise hides whether a later phase undoes it; use the "
        "bounded tier or a wider dtype"
    )


def _find_worst(chain: Chain) -> Worst | None:
    links = chain.broken or chain.held
    if not links:
        return None
    worst = max(
        (link.comparison for link in links),
        key=lambda c: -1.0 if math.isnan(c.error_over_bound) else c.error_over_bound,
    )
    return Worst(
        phase=worst.phase,
        variable=worst.variable,
        error_over_bound=worst.error_over_bound,
    )


def _name_references(chain: Chain) -> dict[str, str]:
    names: dict[str, dict[str, None]] = {}
    for link in chain.settled:
        c = link.comparison
        if c.step >= 0:
            names.setdefault(c.phase, {})[c.against] = None
    return {phase: "; ".join(names[phase]) for phase in PHASES if phase in names}
