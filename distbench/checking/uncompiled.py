"""Names what is wrong with a step that XLA compiles by the step without XLA.

Of what is wrong in the end alone, many causes may be the first one.
"""

from __future__ import annotations

from dataclasses import replace

from distbench.checking.again import First, Judged, Told, Way
from distbench.checking.runs import add_note
from distbench.scenario import Scenario
from distbench.verdict import Status


def _leave_out_xla(scenario: Scenario, _: float) -> Scenario:
    return replace(scenario, jit=False)


def _is_open(first: First) -> bool:
    is_wrong = first.judgement.status is Status.FAIL
    return is_wrong and first.evidence.subject.compiled


def _tell(first: First, again: Judged) -> Told:
    run = again.run
    if run.status is Status.FAIL:
        note = "note: found without XLA; with it the step leaves wrong state too"
        return add_note(run, note)
    if run.status is not Status.PASS:
        return None
    found = first.judgement.findings[0]
    text = (
        f"Step {found.step}, {found.phase} of '{found.variable}': wrong where XLA "
        "compiles the step, and not where it is left out."
    )
    # A script that shows a number leaves XLA out.
    shown = replace(found, code="unexplained", explanation=text, outcome=None)
    return replace(first.judgement, findings=(shown,), message="")


UNCOMPILED = Way(
    words="without XLA", change=_leave_out_xla, is_open=_is_open, tell=_tell
)
