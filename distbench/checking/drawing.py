"""Runs a step once more with random numbers that belong to its examples.

What a step draws is drawn anew each time, and by each replica. Then one device shows no
more than scatter, in which a mistake may hide, or has other numbers than the replicas
have. Where the numbers are data, as the examples are, all is compared as exactly as in
a program that draws none.
"""

from __future__ import annotations

from dataclasses import replace

from distbench.checking.runs import add_note
from distbench.diagnose.judgement import Judgement
from distbench.diagnose.readings import repeats
from distbench.diagnose.seeds import find_own_draws
from distbench.evidence import Evidence
from distbench.scenario import Scenario
from distbench.trace import UPDATED
from distbench.verdict import Run, Status

_GIVEN = "cluster and one device were given the same, those of each example"
_DRAWS = "note: the step draws random numbers;"
_LEAST_S, _LONGER = 20.0, 3.0
_AMONG_REPLICAS = "replicas"
_SHARED = "randomness-shared"
_SAID = (Status.PASS, Status.UNDECIDABLE, Status.FAIL)


def may_be_given(scenario: Scenario, evidence: Evidence, judgement: Judgement) -> bool:
    """Whether a step that is given its random numbers may show more."""
    if scenario.given_draws or scenario.faults or scenario.in_flight > 1:
        return False
    is_open = bool(evidence.reference.notes.get("draws")) and (
        "loss" not in judgement.references
    )
    if evidence.subject.compiled or not (is_open or draws_anew(evidence)):
        return False
    shared = any(f.code == _SHARED and not f.warning for f in judgement.findings)
    return judgement.status in _SAID and not shared


def give_time(scenario: Scenario, seconds: float) -> float:
    """The deadline of a run with given numbers, in seconds.

    A loop that waits for other ones may have no end then, and is not waited for.

    Args:
        scenario: With numbers of its own.
        seconds: How long that took.
    """
    return min(scenario.timeout_s, max(_LEAST_S, _LONGER * seconds))


def draws_anew(evidence: Evidence) -> bool:
    """Whether one device does not have the random numbers that the replicas have."""
    return not repeats(evidence) or bool(find_own_draws(evidence))


def _is_of_update(found: Judgement) -> bool:
    """Whether what is wrong is what an update draws anew, the same on all replicas."""
    wrong = [pair for pair in found.compared if pair.wrong]
    return all(p.phase in UPDATED and p.relation != _AMONG_REPLICAS for p in wrong)


def tell_given(evidence: Evidence, found: Judgement, again: Run) -> Run | None:
    """What a scenario comes to that was run again and given its numbers.

    Args:
        evidence: What was seen of it with its own.
        found: What that came to.
        again: What it came to then.

    Returns:
        None where the first run stands: what fails with numbers of its own alone may do
        so because replicas draw what they should have in common.
    """
    if again.status is Status.FAIL:
        return add_note(again, f"{_DRAWS} found where {_GIVEN}")
    if again.status is not Status.PASS:
        return None
    if found.status is Status.FAIL:
        if repeats(evidence) or not _is_of_update(found):
            return None
        found = replace(found, findings=())
    warnings = [f"warning: {finding.code}" for finding in found.findings]
    notes = (*warnings, again.message, f"{_DRAWS} {_GIVEN}")
    message = "; ".join(filter(None, notes))
    return replace(again, findings=found.findings, message=message)
