"""Judges what was seen of a scenario: what is wrong, whose fault it is, and why."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple

from distbench.checking.confirm import confirm_first, find_correction
from distbench.checking.controls import Controls
from distbench.checking.detailing import keep_details
from distbench.checking.drawing import draws_anew, give_time, may_be_given, tell_given
from distbench.checking.drift import (
    find_roundings,
    is_settled,
    may_drift,
    tell_drift,
)
from distbench.checking.failing import Failing
from distbench.checking.flights import Flights
from distbench.checking.kept import keep_traces
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
from distbench.checking.units import judge_units
from distbench.details import Compared, Details
from distbench.diagnose.flight import judge_flight
from distbench.diagnose.judge import judge
from distbench.diagnose.judgement import Judgement
from distbench.errors import BadInputError, ClusterError
from distbench.evidence import Evidence, Tier
from distbench.flight import Flight
from distbench.observe import Launch, Observation, observe_corrected
from distbench.options import CheckOptions
from distbench.target import TargetRef
from distbench.verdict import Finding, Run, Status


class _Judged(NamedTuple):
    """A run, and what it was judged by, if anything was compared."""

    run: Run
    evidence: Evidence | None = None


_Again = Mapping[str, _Judged]
"""What a scenario comes to that was run otherwise, by tier."""


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
        self._failing = Failing(tiers, self._controls)
        self._looking = Looking(target, launch)
        self._flights = Flights(target, tiers, launch, self._controls)
        self._tried: set[str] = set()

    def judge(self, item: Planned, seen: Observation) -> Iterator[Run]:
        """The runs of a scenario, one for each tier.

        Raises:
            BadInputError: The subject cannot be used.
        """
        with ExitStack() as shelves:
            shelves.callback(seen.clear_arrays)
            for judged in self._judge(item, seen, shelves):
                if self._options.keep is not None and judged.evidence is not None:
                    keep_traces(self._options.keep, item.scenario.id, judged.evidence)
                yield judged.run

    def _judge(
        self, item: Planned, seen: Observation, shelves: ExitStack
    ) -> Iterator[_Judged]:
        yield from map(_Judged, self._skip_lacking(item, seen))
        if seen.failure is not None:
            for run in self._failing.judge(item, seen, seen.failure):
                yield _Judged(replace(run, details=self._keep(seen)))
        elif seen.flight is not None:
            yield _Judged(self._judge_flight(item, seen, seen.flight))
        else:
            yield from self._judge_evidence(item, seen, shelves)

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
        self, item: Planned, seen: Observation, shelves: ExitStack
    ) -> Iterator[_Judged]:
        plain = self._defer(item, shelves, jit=False)
        steady = self._defer(item, shelves, op_determinism=True)
        given = self._defer(
            item,
            shelves,
            given_draws=True,
            timeout_s=give_time(item.scenario, seen.seconds),
        )
        for tier, evidence in seen.evidence.items():
            judgement = judge(evidence)
            is_wrong = judgement.status is Status.FAIL
            if is_wrong and evidence.subject.compiled:
                again = plain()[tier]
                yield self._judge_uncompiled(item, seen, tier, again, judgement)
                continue
            may_be_drift = may_drift(item.spec, seen.environment)
            if may_be_drift and not is_settled(judgement, evidence):
                steadied = self._judge_steady(seen, tier, steady)
                if steadied is not None:
                    yield steadied
                    continue
            judgement = judge_units(
                self._target, item, seen.evidence, tier, judgement, self._launch
            )
            judgement = self._looking.judge(item, evidence, judgement)
            if may_be_given(item.scenario, evidence, judgement):
                drawn = self._judge_given(evidence, judgement, given)
                if drawn is not None:
                    yield drawn
                    continue
            is_wrong = judgement.status is Status.FAIL
            findings = judgement.findings
            if is_wrong:
                findings = self._find_origins(item, seen, tier, findings)
                findings = self._confirm(item, seen, tier, findings)
            run = make_run(
                item,
                tier,
                judgement.status,
                seen.seconds / len(seen.evidence),
                reference=evidence.reference,
                checked=judgement.checked,
                worst=judgement.worst,
                findings=findings,
                references=judgement.references,
                message=tell_injury(seen.injury, judgement.message),
                disk_bytes=seen.disk_bytes // len(seen.evidence),
                details=self._keep(seen, evidence, judgement.compared),
            )
            yield _Judged(run, evidence)

    def _defer(
        self, item: Planned, shelves: ExitStack, **changes: Any
    ) -> Callable[[], _Again]:
        """Run a scenario otherwise when it is asked for, once for all tiers."""
        other = replace(item, scenario=replace(item.scenario, **changes))

        @functools.cache
        def run() -> _Again:
            seen = self._observe_again(other)
            if not isinstance(seen, Observation):
                return {run.tier: _Judged(run) for run in seen}
            shelves.callback(seen.clear_arrays)
            judged = self._judge(other, seen, shelves)
            return {each.run.tier: each for each in judged}

        return run

    def _judge_uncompiled(
        self,
        item: Planned,
        seen: Observation,
        tier: Tier,
        again: _Judged,
        found: Judgement,
    ) -> _Judged:
        """Name what is wrong with a step that XLA compiles by the step without XLA.

        Of what is wrong in the end alone, many causes may be the first one.
        """
        run = again.run
        if run.status is Status.FAIL:
            message = "note: found without XLA; with it the step leaves wrong state too"
            return again._replace(run=replace(run, message=message))
        first = found.findings[0]
        text = (
            f"Step {first.step}, {first.phase} of '{first.variable}': wrong where XLA "
            f"compiles the step, and not where it is left out ({run.status})."
        )
        # A script that shows a number leaves XLA out.
        shown = replace(first, code="unexplained", explanation=text, outcome=None)
        evidence = seen.evidence[tier]
        compiled = make_run(
            item,
            tier,
            found.status,
            seen.seconds + run.seconds,
            reference=evidence.reference,
            checked=found.checked,
            worst=found.worst,
            findings=self._find_origins(item, seen, tier, [shown]),
            references=found.references,
            details=self._keep(seen, evidence, found.compared),
        )
        return _Judged(compiled, evidence)

    def _judge_steady(
        self,
        seen: Observation,
        tier: Tier,
        run_steady: Callable[[], _Again],
    ) -> _Judged | None:
        """What is left where ops repeat their bits; None if the first run stands."""
        try:
            run, other = run_steady()[tier]
        except BadInputError:
            return None  # one device has an op that cannot
        told = tell_drift(
            run,
            seconds=seen.seconds / len(seen.evidence),
            apart=None if other is None else find_roundings(seen.evidence[tier], other),
        )
        return None if told is None else _Judged(told, other)

    def _judge_given(
        self, evidence: Evidence, found: Judgement, run_given: Callable[[], _Again]
    ) -> _Judged | None:
        """What shows where a step is given its numbers; None if the first run stands.

        Where nothing was compared, as of a step that raises, it may be for those. Who
        draws by other means as well has not been given all.
        """
        try:
            again = run_given().get(evidence.tier)
        except BadInputError as error:
            self._launch.log(f"A step that was given its numbers failed: {error}")
            return None
        if again is None or again.evidence is None or draws_anew(again.evidence):
            return None
        told = tell_given(evidence, found, again.run)
        return None if told is None else again._replace(run=told)

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
        return find_origins(
            findings,
            control.findings.get(tier, ()),
            minds_rows=control.minds_rows,
        )

    def _confirm(
        self, item: Planned, seen: Observation, tier: Tier, findings: Sequence[Finding]
    ) -> tuple[Finding, ...]:
        """Confirm a cause once: each code in the first run that shows it."""
        folder, reference, first = seen.folder, seen.reference, findings[0]
        if folder is None or reference is None or tier == "free":
            return tuple(findings)
        # The first one in the plan, and not in time.
        self._wait_for_earlier(item.number)
        if first.code in self._tried:
            return tuple(findings)
        self._tried.add(first.code)
        evidence = seen.evidence[tier]
        phase = find_correction(findings, evidence)
        if phase is None:
            return tuple(findings)
        try:
            corrected = observe_corrected(
                self._target,
                item.scenario,
                item.spec,
                tier,
                phase,
                evidence,
                folder,
                reference,
                self._launch,
            )
        except ClusterError as error:
            self._launch.log(f"The corrected run of {item.scenario.id} failed: {error}")
            return tuple(findings)
        return confirm_first(findings, phase, corrected, evidence)
