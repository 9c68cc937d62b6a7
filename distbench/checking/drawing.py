"""Runs a step once more with random numbers that belong to its examples.

What a step draws is drawn anew each time, and by each replica. Then one device shows no
more than scatter, in which a mistake may hide, or has other numbers than the replicas
have. Where the numbers are data, as the examples are, all is compared as exactly as in
a program that draws none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distbench.checking.again import First, Judged, Way
from distbench.checking.runs import add_note
from distbench.diagnose.judgement import Judgement
from distbench.diagnose.readings.reading import repeats
from distbench.diagnose.seeds import adds_own_draws, find_own_draws
from distbench.evidence import Evidence
from distbench.scenario import Scenario
from distbench.trace import UPDATED
from distbench.verdict import Finding, Run, Status

_GIVEN = "cluster and one device were given the same, those of each example"
_DRAWS = "note: the step draws random numbers;"
_LEAST_S, _LONGER = 20.0, 3.0
_AMONG_REPLICAS = "replicas"
_SHARED, _UNKNOWN = "randomness-shared", "unexplained"
_OF_VALUES = (_UNKNOWN, "statistics-not-synchronized")
"""Codes that say what a value is, and foretell no number of it."""
_OWN = "each replica draws by its own number, and state has sums of that alone"
_SAID = (Status.PASS, Status.UNDECIDABLE, Status.FAIL)


def _give(scenario: Scenario, seconds: float) -> Scenario:
    """The scenario with given numbers.

    A loop that waits for other ones may have no end then, and is not waited for.
    """
    enough_s = max(_LEAST_S, _LONGER * seconds)
    return replace(
        scenario, given_draws=True, timeout_s=min(scenario.timeout_s, enough_s)
    )


def _is_open(first: First) -> bool:
    """Whether a step that is given its random numbers may show more."""
    scenario, evidence = first.item.scenario, first.evidence
    judgement = first.judgement
    if scenario.given_draws or scenario.faults or scenario.in_flight > 1:
        return False
    is_hidden = bool(evidence.reference.draws) and ("loss" not in judgement.references)
    if evidence.subject.compiled or not (is_hidden or _draws_anew(evidence)):
        return False
    shared = any(f.code == _SHARED and not f.warning for f in judgement.findings)
    return judgement.status in _SAID and not shared


def _draws_anew(evidence: Evidence) -> bool:
    """Whether one device does not have the random numbers that the replicas have."""
    return not repeats(evidence) or bool(find_own_draws(evidence))


def _is_of_update(found: Judgement) -> bool:
    """Whether what is wrong is what an update draws anew, the same on all replicas."""
    wrong = [pair for pair in found.compared if pair.wrong]
    return all(p.phase in UPDATED and p.relation != _AMONG_REPLICAS for p in wrong)


def _is_of_own_draws(evidence: Evidence, found: Judgement) -> bool:
    """Whether all that is wrong may be so as each replica draws by its own number.

    One device has the numbers of one alone, so it does not say what sums over all have
    to be. A cause that foretells the numbers of the error is none of these.
    """
    among = any(p.wrong and p.relation == _AMONG_REPLICAS for p in found.compared)
    codes = {finding.code for finding in found.findings if not finding.warning}
    return not among and codes <= set(_OF_VALUES) and adds_own_draws(evidence)


def _loses_cause(found: Sequence[Finding], given: Sequence[Finding]) -> bool:
    """Whether what is wrong first is so in both runs, and explained in one alone."""
    both = [next((f for f in each if not f.warning), None) for each in (found, given)]
    first, second = both
    if first is None or second is None:
        return False
    is_same = (first.step, first.phase) == (second.step, second.phase)
    is_known = first.code != _UNKNOWN and first.confidence == 1.0
    return is_same and is_known and second.code == _UNKNOWN


def _tell(first: First, again: Judged) -> Run | None:
    """What a scenario comes to that was run again and given its numbers.

    The first run stands where nothing was compared, as of a step that raises, which may
    be for the given ones, and where a step draws by other means as well, and has not
    been given all. So it does where it fails and the second one passes: what fails with
    numbers of its own alone may do so because replicas draw what they should have in
    common. What that makes wrong may still be so where all are given the same, and
    have a cause no longer.
    """
    evidence, found, run = first.evidence, first.judgement, again.run
    if again.evidence is None or _draws_anew(again.evidence):
        return None
    if run.status is Status.FAIL:
        if _loses_cause(found.findings, run.findings):
            return None
        return add_note(run, f"{_DRAWS} found where {_GIVEN}")
    if run.status is not Status.PASS:
        return None
    findings, given = found.findings, _GIVEN
    if found.status is Status.FAIL:
        if repeats(evidence):
            if not _is_of_own_draws(evidence, found):
                return None
            given = f"{_GIVEN}; {_OWN}"
        elif not _is_of_update(found):
            return None
        findings = ()
    told = replace(run, findings=findings)
    for warning in findings:
        told = add_note(told, f"warning: {warning.code}")
    return add_note(told, f"{_DRAWS} {given}")


GIVEN = Way(words="given its numbers", change=_give, is_open=_is_open, tell=_tell)
