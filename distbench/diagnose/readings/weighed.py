"""A reading of an evidence, compared and explained as far as that is asked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from distbench.compare.arrays.noise import Noise
from distbench.compare.comparison import (
    Comparison,
    Judged,
    compare_evidence,
    find_wrong_losses,
    take_numbers_again,
)
from distbench.compare.vacuity import Strength, find_uncompared, find_weak_phases
from distbench.diagnose.judgement import Judgement
from distbench.diagnose.readings.deviations import note_forgiven, note_undecided
from distbench.diagnose.readings.notes import (
    find_not_finite,
    note_compiled,
    note_reduction,
    note_start,
    tell_where,
)
from distbench.diagnose.readings.outcome import name_outcomes
from distbench.diagnose.readings.reading import Reading, repeats
from distbench.diagnose.readings.turns import leave_out_turns
from distbench.diagnose.stages.chain import explain_chain
from distbench.diagnose.stages.links import Chain
from distbench.diagnose.stages.scratch import judge_with_scratch
from distbench.trace import COMPUTED, GRADIENTS, PHASES, SUMMED
from distbench.verdict import Finding, Status, Worst


class Weighed:
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
        if evidence.tier == "free" or evidence.fed.turns is not None:
            return frozenset()
        return find_wrong_losses(evidence, self._noise)

    @cached_property
    def _judged(self) -> tuple[Judged, ...]:
        evidence = self._reading.evidence
        return leave_out_turns(compare_evidence(evidence, self._noise), evidence)

    @cached_property
    def _chain(self) -> Chain:
        return judge_with_scratch(self._reading.evidence, self._judged)

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
        return not any(link.comparison.phase in COMPUTED for link in self._chain.wrong)

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

    @property
    def wrong_gradients(self) -> int | None:
        """The first step in which the replicas' gradients make up another sum."""
        links = [link.comparison for link in self._chain.broken]
        steps = [c.step for c in links if c.phase == "local_gradient"]
        return min(steps, default=None)

    def refutes(self, judgement: Judgement) -> bool:
        """Whether another reading finds a sum wrong that is one device's by this one.

        Whatever its addends are: a mean of means may be what is due, where nobody says
        what a shard's gradient counts. Only where any error of the sum would show. A
        finding is of its first step, and some of its variables may be of later ones.
        """
        sums = [
            item.comparison
            for item in self._judged
            if item.comparison.phase in SUMMED
            and item.comparison.relation == "reference"
        ]
        found = {(c.phase, c.step, c.variable) for c in sums}
        right = found - {
            (c.phase, c.step, c.variable) for c in sums if c.wrong or not c.effective
        }
        wrong = {
            (c.step, c.variable)
            for c in judgement.compared
            if c.wrong and c.phase in GRADIENTS
        }
        return any(
            (finding.phase, finding.step, variable) in right
            and (finding.step, variable) in wrong
            for finding in judgement.findings
            for variable in finding.variables
        )

    def explain(self) -> Judgement:
        """Say why it is wrong, where it is."""
        evidence, judged, chain = self._reading.evidence, self._judged, self._chain
        broken = take_numbers_again(chain.broken, evidence, self._noise)
        chain = replace(chain, broken=broken)
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
            of_own=self._reading.of_own,
        )


def _decide(
    judged: Sequence[Judged],
    chain: Chain,
    findings: Sequence[Finding],
    reading: Reading,
) -> tuple[Status, str]:
    if any(not finding.warning for finding in findings):
        return Status.FAIL, ""
    warnings = [f"warning: {finding.code}" for finding in findings]
    comparisons = [item.comparison for item in judged]
    texts = (
        reading.note,
        note_reduction(reading, comparisons),
        note_forgiven(reading.evidence, chain),
        note_start(reading.evidence),
        note_compiled(reading.evidence),
    )
    notes = [*warnings, *filter(None, texts)]
    evidence = reading.evidence
    weak = find_weak_phases(evidence, comparisons, first_known=reading.first_known)
    if weak and not repeats(evidence):
        rest = find_weak_phases(evidence, comparisons, first_known=False)
        if not rest and all(strength == "hidden" for _, strength in weak):
            names = ", ".join(name for name, _ in weak)
            notes.append(
                "note: the step draws random numbers, and their scatter on one device "
                f"hides errors of {names}; the phases after it were checked"
            )
            weak = ()
    if chain.undecided:
        notes.append(note_undecided(evidence, chain))
        return Status.UNDECIDABLE, "; ".join(notes)
    if reading.undecided:
        return Status.UNDECIDABLE, "; ".join([*notes, reading.undecided])
    lack = _find_lack_of_proof(comparisons, weak, reading)
    if lack is not None:
        status, text = lack
        return status, "; ".join([*warnings, text])
    return Status.PASS, "; ".join(notes)


def _find_lack_of_proof(
    comparisons: Sequence[Comparison],
    weak: Sequence[tuple[str, Strength]],
    reading: Reading,
) -> tuple[Status, str] | None:
    """Why nothing could have been wrong, or seen to be; None where it could."""
    known = reading.evidence.reference.by_path
    uncompared = find_uncompared(reading.evidence, comparisons)
    if unknown := [path for path in uncompared if path not in known]:
        return Status.VACUOUS, (
            f"'{unknown[0]}' was trained, and compared with nothing: one device has no "
            "variable of that name; name variables alike on both"
        )
    hidden, empty, lacking = (
        [name for name, strength in weak if strength == kind]
        for kind in ("hidden", "empty", "lacking")
    )
    if empty or lacking:
        if reading.note and not (reading.evidence.fed.replays and reading.first_known):
            return Status.VACUOUS, reading.note.removeprefix("note: ")
        names = ", ".join(empty or lacking)
        text = f"no comparison of {names} could have failed"
        if (found := find_not_finite(reading.evidence.reference)) is not None:
            step, path = found
            return Status.VACUOUS, (
                f"{text}: on one device numbers of '{path}' are not finite from step "
                f"{step} on; {tell_where(reading.evidence.reference, step, path)}"
            )
        if not empty:
            return Status.VACUOUS, (
                f"no comparison of {names} could be made: one device does not tell "
                "what it has to be; use a loss of which the global batch is a measure"
            )
        return Status.VACUOUS, (
            f"{text}: with an example or a replica lost the numbers would be the same; "
            "use data with gradients that are not 0"
        )
    if hidden:
        noise, advice = "noise of correct runs", "use fewer examples or a wider dtype"
        if reading.evidence.reference.draws:
            noise = "scatter of the random numbers that the step draws"
            advice = "check it without these too (a dropout's rate of 0)"
        return Status.UNDECIDABLE, (
            f"in {', '.join(hidden)} the {noise} is as large as one lost example or "
            f"replica; {advice}"
        )
    return None


def _find_worst(chain: Chain) -> Worst | None:
    links = chain.broken or chain.apart or chain.held
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
