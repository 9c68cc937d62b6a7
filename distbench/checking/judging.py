"""Judges what was seen of a scenario: what is wrong, whose fault it is, and why."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import NamedTuple

from distbench.checking.again import First, Judged, Way
from distbench.checking.attempt import attempt
from distbench.checking.confirm import confirm_first, find_correction
from distbench.checking.controls import Controls
from distbench.checking.detailing import keep_details
from distbench.checking.drawing import GIVEN
from distbench.checking.drift import STEADY
from distbench.checking.failing import Failing
from distbench.checking.flights import Flights
from distbench.checking.kept import Kept
from distbench.checking.locating import Looking
from distbench.checking.origin import (
    find_origins,
    has_sparse_gradients,
    may_be_framework,
)
from distbench.checking.plan import Planned, list_possible
from distbench.checking.runs import (
    end_uncompared,
    make_run,
    tell_injury,
)
from distbench.checking.uncompiled import UNCOMPILED
from distbench.checking.units import judge_units
from distbench.details import Compared, Details
from distbench.diagnose.flight import judge_flight
from distbench.diagnose.judge import judge
from distbench.errors import BadInputError
from distbench.evidence import Evidence, Tier
from distbench.flight import Flight
from distbench.observe import Launch, Observation, observe_corrected
from distbench.options import CheckOptions
from distbench.target import TargetRef
from distbench.verdict import Finding, Run, Status

_WAYS = (UNCOMPILED, STEADY, GIVEN)
"""How a scenario may be run again, in the order in which they are tried."""


class _Again(NamedTuple):
    """What a scenario that is run once more comes to.

    Attributes:
        judged: By tier.
        tried: Codes of causes of which there is no need to confirm one again.
    """

    judged: Mapping[str, Judged]
    tried: frozenset[str] = frozenset()


_Rerun = Callable[[], _Again]
"""Runs a scenario once more when it is asked for."""


class Judging:
    """Makes the runs of a verdict from what was seen; further clusters may be asked.

    Args:
        target: The subject.
        options: What is kept and shown.
        tiers: Those of the check.
        launch: How tasks are started.
        wait_for_earlier: Waits for the scenarios planned before one, by its number.
        observe_again: Has a scenario run by itself, and returns what was seen of it;
            its runs, where nothing could be.
    """

    def __init__(
        self,
        target: TargetRef,
        options: CheckOptions,
        tiers: tuple[Tier, ...],
        launch: Launch,
        *,
        wait_for_earlier: Callable[[int], None],
        observe_again: Callable[[Planned], Observation | tuple[Run, ...]],
    ) -> None:
        self._target = target
        self._options = options
        self._tiers = tiers
        self._launch = launch
        self._wait_for_earlier = wait_for_earlier
        self._observe_again = observe_again
        self._controls = Controls(launch, tiers)
        self._failing = Failing(tiers, self._controls, observe_again)
        self._looking = Looking(target, launch)
        self._flights = Flights(target, tiers, launch, self._controls)
        self._tried: set[str] = set()

    def judge(self, item: Planned, seen: Observation, kept: Kept) -> Iterator[Run]:
        """The runs of a scenario, one for each tier.

        Args:
            item: The scenario.
            seen: What was seen of it.
            kept: Gets the traces by which they are judged.

        Raises:
            BadInputError: The subject cannot be used.
        """
        with ExitStack() as shelves:
            shelves.callback(seen.clear_arrays)
            for judged in self._judge(item, seen, shelves, self._tried):
                if judged.evidence is not None:
                    kept.write(judged.evidence)
                yield judged.run

    def _judge(
        self, item: Planned, seen: Observation, shelves: ExitStack, tried: set[str]
    ) -> Iterator[Judged]:
        yield from map(Judged, self._skip_lacking(item, seen))
        if seen.failure is not None:
            runs = self._failing.judge(item, seen, seen.failure)
            yield from self._judge_failed(item, seen, tuple(runs), shelves, tried)
        elif seen.flight is not None:
            yield Judged(self._judge_flight(item, seen, seen.flight))
        else:
            yield from self._judge_evidence(item, seen, shelves, tried)

    def _judge_failed(
        self,
        item: Planned,
        seen: Observation,
        runs: Sequence[Run],
        shelves: ExitStack,
        tried: set[str],
    ) -> Iterator[Judged]:
        """The runs of a scenario that failed, after what its steps before that show."""
        steps = max((found.step for run in runs for found in run.findings), default=0)
        before = _Again({})
        scenario = item.scenario
        # Steps in flight and a restored run count in another way, and what befell one
        # of the steps had a run without it.
        is_alike = not (scenario.faults or scenario.restore_from)
        if 0 < steps < scenario.steps and scenario.in_flight == 1 and is_alike:
            fewer = replace(item, scenario=replace(scenario, steps=steps))
            before = self._defer("with fewer steps", fewer, shelves)()
        for run in runs:
            judged = before.judged.get(run.tier)
            if judged is None or judged.run.status is not Status.FAIL:
                yield Judged(replace(run, details=self._keep(seen)))
                continue
            tried |= before.tried
            first = judged.run
            told = replace(
                first,
                seconds=first.seconds + run.seconds,
                setup={**first.setup, "steps": scenario.steps},
                findings=(*first.findings, *run.findings),
                detail=run.detail,
            )
            yield judged._replace(run=told)

    def _skip_lacking(self, item: Planned, seen: Observation) -> Iterator[Run]:
        """The run of the exact tier, where it was asked for and cannot be had."""
        possible = list_possible(self._tiers, item.scenario)
        is_known = bool(seen.tiers) or seen.failure is None or "exact" not in possible
        if not is_known or "exact" not in {*self._options.tiers} - {*seen.tiers}:
            return
        need = "data and a rule on which no sum of gradients rounds"
        have = "other"
        if item.scenario.restore_from:
            need = "values that no cluster has trained"
            have = f"those that '{item.scenario.restore_from}' left"
        elif item.scenario.in_flight > 1:
            need = "a rule whose steps come to the same in every order"
        message = f"need {need} for the exact tier, have {have}"
        yield from end_uncompared(item, ("exact",), Status.SKIPPED, message=message)

    def _judge_evidence(
        self, item: Planned, seen: Observation, shelves: ExitStack, tried: set[str]
    ) -> Iterator[Judged]:
        again = [
            (way, self._defer(way.words, way.plan(item, seen.seconds), shelves))
            for way in _WAYS
        ]
        for evidence in seen.evidence.values():
            first = First(item, seen, evidence, judge(evidence))
            yield self._judge_tier(first, again, tried)

    def _judge_tier(
        self, first: First, again: Sequence[tuple[Way, _Rerun]], tried: set[str]
    ) -> Judged:
        item, seen, evidence, _ = first
        tier = evidence.tier
        seconds = seen.seconds / len(seen.evidence)
        for way, run_again in again:
            found = run_again() if way.is_open(first) else _Again({})
            other = found.judged.get(tier)
            if other is None:
                continue
            seconds += other.run.seconds
            told = way.tell(first, other)
            if isinstance(told, Run):
                # The time it was given hangs on how long the first one took.
                setup = {**told.setup, "timeout_s": item.scenario.timeout_s}
                run = replace(told, seconds=seconds, setup=setup)
                tried |= found.tried
                return other._replace(run=run, own=evidence)
            if told is not None:
                first = first._replace(judgement=told)
        judgement = judge_units(
            self._target, item, seen.evidence, tier, first.judgement, self._launch
        )
        judgement = self._looking.judge(item, evidence, judgement)
        findings = judgement.findings
        if judgement.status is Status.FAIL:
            findings = self._find_origins(item, seen, tier, findings)
            findings = self._confirm(item, seen, tier, findings, tried)
        run = make_run(
            item,
            tier,
            judgement.status,
            seconds,
            reference=evidence.reference,
            checked=judgement.checked,
            worst=judgement.worst,
            findings=findings,
            references=judgement.references,
            message=tell_injury(seen.injury, judgement.message),
            disk_bytes=seen.disk_bytes // len(seen.evidence),
            details=self._keep(seen, evidence, judgement.compared),
        )
        return Judged(run, evidence, own=evidence)

    def _defer(self, words: str, other: Planned, shelves: ExitStack) -> _Rerun:
        """Run a scenario in another way when it is asked for, once for all tiers."""

        @functools.cache
        def run() -> _Again:
            tried: set[str] = set()  # what is thrown away has confirmed nothing
            try:
                seen = self._observe_again(other)
                if not isinstance(seen, Observation):
                    return _Again({run.tier: Judged(run) for run in seen})
                shelves.callback(seen.clear_arrays)
                judged = self._judge(other, seen, shelves, tried)
                return _Again({j.run.tier: j for j in judged}, frozenset(tried))
            except BadInputError as error:
                # One device itself may not be able to, or a task.
                name = other.scenario.id
                self._launch.log(f"{name} could not be run again {words}: {error}")
                return _Again({})

        return run

    def _judge_flight(self, item: Planned, seen: Observation, flight: Flight) -> Run:
        judgement = judge_flight(flight)
        findings = self._flights.find_origins(item, seen, flight, judgement.findings)
        return make_run(
            item,
            flight.tier,
            judgement.status,
            seen.seconds,
            checked=judgement.checked,
            worst=judgement.worst,
            findings=findings,
            references=judgement.references,
            message=tell_injury(seen.injury, judgement.message),
            staleness=flight.staleness,
            disk_bytes=seen.disk_bytes,
            details=self._keep(seen, flight, judgement.compared),
        )

    def _keep(
        self,
        seen: Observation,
        evidence: Evidence | Flight | None = None,
        compared: Sequence[Compared] = (),
    ) -> Details | None:
        if not self._options.details:
            return None
        return keep_details(evidence, compared, seen.logs)

    def _find_origins(
        self,
        item: Planned,
        seen: Observation,
        tier: Tier,
        findings: Sequence[Finding],
    ) -> tuple[Finding, ...]:
        if not may_be_framework(item.scenario, findings):
            return tuple(findings)
        is_sparse = has_sparse_gradients(seen.evidence[tier])
        overflows = any(finding.code == "nonfinite" for finding in findings)
        control = self._controls.run(
            item.scenario,
            item.spec,
            seen.control,
            is_sparse=is_sparse,
            overflows=overflows,
        )
        if control is None:
            return tuple(findings)
        if control.failure is not None:
            name = item.scenario.id
            self._launch.log(f"The control of {name} failed: {control.failure}")
        # What overflows by its data has no exact tier.
        shown = control.findings.get(tier, control.findings.get("bounded", ()))
        return find_origins(
            findings,
            shown,
            minds_rows=control.minds_rows,
        )

    def _confirm(
        self,
        item: Planned,
        seen: Observation,
        tier: Tier,
        findings: Sequence[Finding],
        tried: set[str],
    ) -> tuple[Finding, ...]:
        """Confirm a cause once: each code in the first run that shows it.

        Args:
            item: The scenario.
            seen: What was seen of it.
            tier: In which tier.
            findings: What is wrong there.
            tried: Codes that runs of its kind have shown; gets that of the first one.
        """
        errand, first = seen.errand, findings[0]
        if errand is None or tier == "free":
            return tuple(findings)
        # The first one in the plan, and not in time.
        self._wait_for_earlier(item.number)
        if first.code in self._tried | tried:
            return tuple(findings)
        tried.add(first.code)
        evidence = seen.evidence[tier]
        phase = find_correction(findings, evidence)
        if phase is None:
            return tuple(findings)
        corrected = attempt(
            self._launch,
            f"The corrected run of {item.scenario.id}",
            lambda: observe_corrected(errand, tier, phase, evidence),
        )
        if corrected is None:
            return tuple(findings)
        return confirm_first(findings, phase, corrected, evidence)
