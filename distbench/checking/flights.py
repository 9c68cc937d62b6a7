"""Whose fault it is what went wrong with steps in flight, asked of further runs."""

from __future__ import annotations

from collections.abc import Sequence

from distbench.checking.attempt import attempt
from distbench.checking.controls import Controls
from distbench.checking.origin import may_be_framework
from distbench.checking.plan import Planned, leave_one_worker
from distbench.checking.races import find_race_origins
from distbench.diagnose.flight import judge_flight
from distbench.evidence import Tier
from distbench.flight import Flight
from distbench.observe import Launch, Observation, observe
from distbench.target import TargetRef
from distbench.verdict import Finding


class Flights:
    """Tells races that are the framework's from the subject's.

    Args:
        target: The subject.
        tiers: Those of the check.
        launch: How tasks are started.
        controls: Runs the stock optimizer in the subject's place.
    """

    def __init__(
        self,
        target: TargetRef,
        tiers: tuple[Tier, ...],
        launch: Launch,
        controls: Controls,
    ) -> None:
        self._target = target
        self._tiers = tiers
        self._launch = launch
        self._controls = controls

    def find_origins(
        self,
        item: Planned,
        seen: Observation,
        flight: Flight,
        findings: Sequence[Finding],
    ) -> tuple[Finding, ...]:
        """The findings of a scenario, each with its origin."""
        if not findings or not may_be_framework(item.scenario, findings):
            return tuple(findings)
        control = self._controls.run(
            item.scenario, item.spec, seen.control, is_sparse=flight.has_sparse
        )
        if control is None:
            return tuple(findings)
        alone = leave_one_worker(item)
        return find_race_origins(
            findings,
            flight.torn,
            control,
            lambda: self._fly(alone),
            lambda: self._fly_control(alone, seen.control, flight),
        )

    def _fly(self, item: Planned) -> Sequence[Finding]:
        """What is wrong with steps in flight on another cluster, if they end there.

        With a task hurt on purpose there may be nobody left to end them.
        """
        if self._launch.injury is not None:
            return ()
        scenario, launch = item.scenario, self._launch
        seen = attempt(
            launch,
            f"A run of {scenario.id}",
            lambda: observe(self._target, scenario, item.spec, self._tiers, launch),
        )
        if seen is None:
            return ()
        found = () if seen.flight is None else judge_flight(seen.flight).findings
        seen.clear_arrays()
        return found

    def _fly_control(
        self, item: Planned, control: TargetRef | None, flight: Flight
    ) -> Sequence[Finding]:
        found = self._controls.run(
            item.scenario, item.spec, control, is_sparse=flight.has_sparse
        )
        of_tiers = {} if found is None else found.findings
        return [finding for of_tier in of_tiers.values() for finding in of_tier]
