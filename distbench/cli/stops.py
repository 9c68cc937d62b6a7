"""Where `distbench debug` can stop for a verdict: pure functions of what it says."""

from __future__ import annotations

from distbench.errors import BadInputError
from distbench.options import CheckOptions
from distbench.repro.case import find_target, list_failed, read_scenario
from distbench.shrink import make_start
from distbench.stop import Stop, check_stoppable
from distbench.target import TargetRef
from distbench.trace import PHASES
from distbench.verdict import Run, Verdict


def pick_stop(
    verdict: Verdict, only: str | None = None
) -> tuple[TargetRef, CheckOptions, Stop]:
    """The first finding with a value at which a step can be stopped.

    Args:
        verdict: From anywhere.
        only: Id of the scenario whose finding is wanted; None takes the first.

    Returns:
        The subject, the options of its scenario, and the place.

    Raises:
        BadInputError: There is none; it says why the first one is none.
    """
    reasons: list[BadInputError] = []
    for run in list_failed(verdict, only):
        try:
            return _find_stop(verdict, run)
        except BadInputError as error:
            reasons.append(error)
    raise reasons[0]


def _find_stop(verdict: Verdict, run: Run) -> tuple[TargetRef, CheckOptions, Stop]:
    scenario = read_scenario(verdict, run)
    finding = next(f for f in run.findings if not f.warning)
    check_stoppable(scenario.spec)
    if finding.code == "raises" or finding.phase not in PHASES:
        raise BadInputError(
            f"Run '{run.scenario}': {finding.code} has no value to stop at. Expected a "
            f"wrong number in one of {', '.join(PHASES)}. Received: phase "
            f"{finding.phase!r}. The report says where it happened."
        )
    stop = Stop(
        step=max(0, finding.step),
        phase=finding.phase,
        replica=min(finding.replicas, default=0),
        variable=finding.variable,
        given_draws=scenario.given_draws,
    )
    return find_target(scenario.target), make_start(scenario, run), stop
