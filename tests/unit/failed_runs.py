"""A run that failed, with a number for a script to show."""

from __future__ import annotations

from verdict_samples import LINEAR_SETUP, make_finding, make_run

from distbench.verdict import Outcome, Run, Status

OUTCOME = Outcome(
    phase="variable",
    step=0,
    variable="kernel",
    index=0,
    element=(1, 1),
    replica=0,
    expected=2.0,
    observed=1.5,
    bound=1e-6,
)
SETUP = {"target": "a.b:make_c", **LINEAR_SETUP}


def make_failed(outcome: Outcome | None = OUTCOME, code: str = "", **changes) -> Run:
    finding = make_finding(
        outcome=outcome, variable="kernel", code=code or "missing-reduction"
    )
    settings = {
        "workload": "linear",
        "path": "default",
        "cluster": "mwms:2",
        "setup": SETUP,
        "findings": (finding,),
        **changes,
    }
    return make_run(Status.FAIL, **settings)
