"""Judges one tier of one scenario: status and findings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from distbench.compare.arrays.noise import Noise
from distbench.compare.inside.unseen import take_unseen
from distbench.compare.nature.absent import add_absent
from distbench.compare.nature.odd_terms import settle_terms
from distbench.compare.state.measured_noise import measure_noise
from distbench.compare.state.sensitive import find_cut_sensitive, find_row_sensitive
from distbench.diagnose.choice import judge_best
from distbench.diagnose.judgement import Judgement
from distbench.diagnose.readings.averaged import (
    AVERAGED,
    read_averaged,
    take_shares,
    tells_more,
)
from distbench.diagnose.readings.formed import find_formed
from distbench.diagnose.readings.kept_apart import find_kept_apart
from distbench.diagnose.readings.notes import (
    note_cut,
    note_kept_tensors,
    note_left_out,
    note_not_finite,
    note_packed,
    note_padded,
    note_reshaped,
    note_rows,
    note_sizes,
    note_uncompared,
    note_unread,
)
from distbench.diagnose.readings.overflowing import (
    leave_parted,
    note_parted,
    part_steps,
)
from distbench.diagnose.readings.owners import name_owners
from distbench.diagnose.readings.reading import Reading
from distbench.diagnose.readings.unjudged import (
    note_alone,
    note_dealt_out,
    note_in_full,
    note_metrics,
)
from distbench.diagnose.readings.weighed import Weighed
from distbench.diagnose.readings.weighted_sums import explains_sums, read_weighted
from distbench.diagnose.remarks.examples import count_examples
from distbench.diagnose.remarks.misplaced import find_misplaced
from distbench.diagnose.remarks.pipelines import describe_pipeline
from distbench.diagnose.remarks.randomness import find_shared_randomness
from distbench.diagnose.remarks.shown import find_shown, note_shown
from distbench.diagnose.remarks.workers import note_worker
from distbench.diagnose.stages.chain import find_place
from distbench.evidence import Evidence
from distbench.verdict import Finding, Status


def judge(evidence: Evidence) -> Judgement:
    """Compare everything, find where the chain breaks first, and say why."""
    with np.errstate(all="ignore"):
        evidence = part_steps(add_absent(name_owners(take_unseen(evidence))))
        if evidence.subject.averages:
            evidence = take_shares(evidence)
        noise = measure_noise(evidence)
        evidence = settle_terms(evidence, noise)
        judgement = judge_best(evidence, noise)
        judgement = _read_weighted(evidence, noise, judgement) or _read_averaged(
            evidence, noise, judgement
        )
        rows, cut = find_row_sensitive(evidence), find_cut_sensitive(evidence)
        apart = find_kept_apart(evidence, noise, judgement)
        if apart is not None:
            judgement = _add_apart(judgement, apart)
        formed = find_formed(evidence, noise, judgement)
        found = (find_misplaced(evidence), find_shared_randomness(evidence, noise))
    if formed is not None:
        judgement = _add(judgement, formed)
    judgement = _add(judgement, *count_examples(evidence.examples))
    for finding in filter(None, found):
        judgement = _add(judgement, finding)
    judgement = leave_parted(evidence, _demand_state(evidence, judgement))
    notes = [
        judgement.message,
        note_parted(evidence),
        note_sizes(evidence.reference),
        note_padded(evidence.reference),
        note_left_out(evidence.reference),
        *describe_pipeline(evidence.examples),
        note_reshaped(evidence.observed),
        note_packed(evidence.observed),
        note_unread(evidence.observed),
        note_rows(evidence.reference, rows),
        note_cut(cut),
        note_alone(evidence, judgement.findings),
    ]
    if judgement.status is Status.PASS:
        judgement = _add(judgement, *find_shown(evidence))
    if judgement.status is Status.FAIL:
        notes.append(note_kept_tensors(evidence.observed))
        notes.append(note_worker(evidence, judgement.compared))
    if judgement.status is Status.PASS:
        notes += [
            note_metrics(evidence, judgement.compared),
            note_shown(evidence),
            note_in_full(evidence),
            note_dealt_out(evidence, noise, judgement.compared),
            note_not_finite(evidence.reference),
        ]
    return replace(judgement, message="; ".join(filter(None, notes)))


def _add(judgement: Judgement, *findings: Finding) -> Judgement:
    """With further findings, each where it belongs in causal order.

    What was found before keeps its order, and comes later in the same phase.
    """
    ordered = list(judgement.findings)
    for finding in reversed(findings):
        sooner = [
            n for n, f in enumerate(ordered, 1) if find_place(f) < find_place(finding)
        ]
        ordered.insert(max(sooner, default=0), finding)
    found = replace(judgement, findings=tuple(ordered))
    if all(finding.warning for finding in findings):
        return found
    # Why nothing could have been wrong is no reason any more; notes on it may be.
    is_open = judgement.status in (Status.VACUOUS, Status.UNDECIDABLE)
    message = "" if is_open else judgement.message
    return replace(found, status=Status.FAIL, message=message)


def _add_apart(judgement: Judgement, apart: Finding) -> Judgement:
    """With state that losses read apart.

    What replicas make of their own shards is not meant then.
    """
    message = "" if judgement.status is Status.PASS else judgement.message
    meant = replace(judgement, message=message, doubtful=None, of_own=False)
    return _add(meant, apart)


def _demand_state(evidence: Evidence, judgement: Judgement) -> Judgement:
    """Vacuous, where what was trained has passed and was compared with nothing.

    Only at last: it says nothing of which reading is right.
    """
    if judgement.status is not Status.PASS:
        return judgement
    text = note_uncompared(evidence, judgement.compared)
    if not text:
        return judgement
    message = "; ".join(filter(None, (judgement.message, text)))
    return replace(judgement, status=Status.VACUOUS, message=message)


def _read_weighted(
    evidence: Evidence, noise: Noise, found: Judgement
) -> Judgement | None:
    """What is wrong with a sum of weighted gradients, if that is all that is wrong."""
    weighted = read_weighted(evidence, found)
    if weighted is None:
        return None
    judgement = Weighed(Reading(evidence=weighted), noise).explain()
    return judgement if explains_sums(judgement) else None


def _read_averaged(evidence: Evidence, noise: Noise, found: Judgement) -> Judgement:
    """What is wrong with an average of gradients that are right, if that tells all.

    Nothing is, where the gradients are N times their shares and nothing else is wrong.
    """
    averaged = read_averaged(evidence, found)
    if averaged is None:
        return found
    best = judge_best(averaged, noise)
    if best.status is Status.PASS:
        return replace(best, message="; ".join(filter(None, (best.message, AVERAGED))))
    return best if tells_more(evidence, found, best) else found
