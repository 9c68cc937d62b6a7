"""Runs controls: the stock optimizer of a subject's family in the subject's place."""

from __future__ import annotations

import hashlib
from pathlib import Path

from distbench.checking.attempt import attempt
from distbench.checking.origin import Control, plan_control
from distbench.cluster import ClusterSpec
from distbench.compare.state.sensitive import find_row_sensitive
from distbench.diagnose.flight import judge_flight
from distbench.diagnose.judge import judge
from distbench.evidence import Tier
from distbench.locks import Locks
from distbench.observe import Launch, Observation, observe
from distbench.scenario import Scenario, scenario_to_json
from distbench.target import TargetRef

_KNOWN: dict[tuple[object, ...], Control] = {}
"""What stock optimizers showed in this process: the same whoever asks again."""
_LASTING = ("subject", "input", "collective")
"""Kinds of failures that come again; others come of what a machine had left."""
_LOCKS = Locks()
"""Held while a control runs: who asks for the same meanwhile waits for it."""


class Controls:
    """Runs each control once.

    Args:
        launch: How tasks are started.
        tiers: Those of the check.
    """

    def __init__(self, launch: Launch, tiers: tuple[Tier, ...]) -> None:
        self._launch = launch
        self._tiers = tiers

    def run(
        self,
        scenario: Scenario,
        spec: ClusterSpec,
        control: TargetRef | None,
        *,
        is_sparse: bool = False,
        overflows: bool = False,
    ) -> Control | None:
        """What the stock optimizer shows in the place of the subject.

        Args:
            scenario: That of the subject.
            spec: Its resolved cluster spec.
            control: The stock optimizer; None where the subject has none.
            is_sparse: Whether the subject has sparse gradients.
            overflows: Whether what is wrong has to do with an overflow on one replica.

        Returns:
            None where there is no control or nothing was learnt.
        """
        if control is None:
            return None
        planned = plan_control(
            scenario, control, is_sparse=is_sparse, overflows=overflows
        )
        # The target lies in a folder of this check; what is in it says what it is.
        key = (
            hashlib.sha256(Path(control.path).read_bytes()).digest(),
            scenario_to_json(planned),
            str(spec),
            self._tiers,
            self._launch.injury,
        )
        with _LOCKS.of(key):
            if key in _KNOWN:
                return _KNOWN[key]
            found = attempt(
                self._launch,
                f"The control of {scenario.id}",
                lambda: _judge(
                    observe(control, planned, spec, self._tiers, self._launch)
                ),
            )
            if found is None:
                return None
            if found.failure is None or found.failure.kind in _LASTING:
                _KNOWN[key] = found
            return found


def _judge(seen: Observation) -> Control:
    findings = {tier: judge(e).findings for tier, e in seen.evidence.items()}
    torn: frozenset[str] = frozenset()
    if seen.flight is not None:
        findings[seen.flight.tier] = judge_flight(seen.flight).findings
        torn = seen.flight.torn
    minds_rows = any(map(find_row_sensitive, seen.evidence.values()))
    seen.clear_arrays()
    return Control(
        failure=seen.failure, findings=findings, torn=torn, minds_rows=minds_rows
    )
