"""Checks a subject: has its scenarios observed, and judges what was seen."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import groupby

from distbench.checking.confirm import confirm_first
from distbench.checking.controls import Controls
from distbench.checking.detailing import keep_details
from distbench.checking.failing import Failing
from distbench.checking.flights import Flights
from distbench.checking.kept import keep_traces
from distbench.checking.lanes import Lanes, Piece
from distbench.checking.launches import make_launch
from distbench.checking.origin import (
    find_origins,
    has_sparse_gradients,
    may_be_framework,
)
from distbench.checking.plan import (
    Planned,
    list_clusters,
    name_cluster,
    plan_scenarios,
)
from distbench.checking.runs import end_uncompared, make_run, tell_injury
from distbench.checking.telling import Telling
from distbench.details import Compared, Details
from distbench.diagnose.flight import judge_flight
from distbench.diagnose.judge import judge
from distbench.diagnose.judgement import Judgement
from distbench.engines import open_engine
from distbench.errors import BadInputError, ClusterError
from distbench.evidence import Evidence, Tier
from distbench.flight import Flight
from distbench.launch.engine import Room
from distbench.launch.group import Group
from distbench.launch.rundir import RunDirectory
from distbench.machine import Machine, describe_machine
from distbench.observe import (
    Launch,
    Observation,
    OneDevice,
    describe_subject,
    observe,
    observe_corrected,
    start_one,
)
from distbench.options import CheckOptions, Progress
from distbench.target import TargetRef, adopt_target
from distbench.trace import Phase
from distbench.trace.shelf import Shelf
from distbench.verdict import Finding, Run, Status, Verdict


class Checker:
    """Checks one subject.

    Args:
        target: The subject.
        options: Which scenarios to run.
        launch: How their tasks are started.
        progress: Who wants to know how far it is, and may be told by any thread.
    """

    def __init__(
        self,
        target: TargetRef,
        options: CheckOptions,
        launch: Launch,
        progress: Progress | None = None,
    ) -> None:
        self._target = target
        self._options = options
        self._launch = launch
        self._progress = progress or Telling(None)
        self._environments: dict[int, dict[str, object]] = {}
        self._lanes: Lanes[tuple[Run, ...]] = Lanes(
            options.jobs, launch.engine.find_room(), launch.halt
        )
        self._tried: set[str] = set()
        # What was trained before is not dyadic any more.
        left_out = ("exact",) if options.restore_from else ()
        self._tiers: tuple[Tier, ...] = tuple(
            tier  # type: ignore[misc]  # validated by the options
            for tier in options.tiers
            if tier not in left_out
        )
        self._controls = Controls(launch, self._tiers)
        self._failing = Failing(self._tiers, self._controls)
        self._flights = Flights(target, self._tiers, launch, self._controls)
        self._machine: Machine = launch.engine.inspect()

    def name(self, cluster: str) -> str:
        """What a cluster spec of the options is called in the verdict."""
        return name_cluster(cluster, self._machine)

    def run(self) -> Verdict:
        """Run every scenario; returns what was found."""
        group = start_one(self._launch, self._options.seed, self._options.jit)
        with group:
            kind, is_fresh = describe_subject(self._target, group)
            planned = plan_scenarios(
                self._target.describe(), kind, self._options, self._machine
            )
            return self._run_all(planned, group if is_fresh else None)

    def _run_all(self, planned: Sequence[Planned], group: Group | None) -> Verdict:
        self._progress.plan([item.scenario for item in planned])
        alike = [list(items) for _, items in groupby(planned, key=self._find_reference)]
        runs = self._lanes.run(
            [
                Piece(
                    needs=_measure_needs(items),
                    work=partial(self._tell_all, items, None if place else group),
                )
                for place, items in enumerate(alike)
            ]
        )
        environment: dict[str, object] = {
            "python": sys.version.split()[0],
            "machine": dict(describe_machine(self._options.engine)),
        }
        for number in sorted(self._environments):
            environment |= self._environments[number]
        return Verdict(
            target=self._target.describe(),
            runs=tuple(run for found in runs for run in found),
            environment=environment,
        )

    def _find_reference(self, item: Planned) -> object:
        """What tells whether two scenarios share their single-device run.

        With several lanes none do: they would wait for each other.
        """
        return item.reference if self._options.jobs == 1 else item.number

    def _tell_all(
        self, items: Sequence[Planned], group: Group | None
    ) -> tuple[Run, ...]:
        """Run scenarios with the same single-device run, and tell of them."""
        runs = []
        with closing(OneDevice(self._launch, group, scenarios=len(items))) as one:
            for item in items:
                self._progress.start(item.scenario.id)
                for run in self._run_one(item, one):
                    runs.append(run)
                    self._progress.finish(run)
        return tuple(runs)

    def _run_one(self, item: Planned, one: OneDevice) -> Iterator[Run]:
        scenario = item.scenario
        found = map(self._machine.find_lack, item.specs)
        lacks = [lack for lack in found if lack]
        if lacks:
            too_few = self._options.require_gpus > self._machine.gpus
            status = Status.ERROR if too_few else Status.SKIPPED
            yield from end_uncompared(item, self._tiers, status, message=lacks[0])
            return
        try:
            seen = observe(
                self._target, scenario, item.spec, self._tiers, self._launch, one
            )
        except BadInputError as error:
            if not item.optional:
                raise
            message = f"need an optimizer that takes sparse gradients ({error})"
            yield from end_uncompared(
                item, self._tiers, Status.SKIPPED, message=message
            )
            return
        except ClusterError as error:
            yield from end_uncompared(
                item,
                self._tiers,
                Status.ERROR,
                message=str(error),
                detail=error.detail,
            )
            return
        self._environments.setdefault(item.number, {}).update(seen.environment)
        if seen.failure is not None:
            for run in self._failing.judge(item, seen, seen.failure):
                yield replace(run, details=self._keep(seen))
        elif seen.flight is not None:
            yield self._judge_flight(item, seen, seen.flight)
        elif not seen.evidence:
            message = (
                "need data and a rule on which no sum of gradients rounds for the "
                "exact tier, have other"
            )
            yield from end_uncompared(
                item,
                self._tiers,
                Status.SKIPPED,
                seconds=seen.seconds,
                message=message,
            )
        else:
            yield from self._judge_evidence(item, seen)

    def _judge_evidence(self, item: Planned, seen: Observation) -> Iterator[Run]:
        for tier, evidence in seen.evidence.items():
            if self._options.keep is not None:
                keep_traces(self._options.keep, item.scenario.id, evidence)
            judgement = judge(evidence)
            if judgement.status is Status.FAIL and evidence.compiled:
                yield self._judge_uncompiled(item, seen, tier, judgement)
                continue
            findings = judgement.findings
            if judgement.status is Status.FAIL:
                findings = self._find_origins(item, seen, tier, findings)
                findings = self._confirm(item, seen, tier, findings)
            yield make_run(
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
        if seen.folder is not None:
            # The scenarios of a check may take more disk together than there is.
            Shelf(seen.folder).clear()

    def _judge_uncompiled(
        self, item: Planned, seen: Observation, tier: Tier, found: Judgement
    ) -> Run:
        """Name what is wrong with a step that XLA compiles by the step without XLA.

        Of what is wrong in the end alone, many causes may be the first one.
        """
        plain = replace(item, scenario=replace(item.scenario, jit=False))
        with closing(OneDevice(self._launch)) as one:
            (run,) = (run for run in self._run_one(plain, one) if run.tier == tier)
        if run.status is Status.FAIL:
            message = "note: found without XLA; with it the step leaves wrong state too"
            return replace(run, message=message)
        first = found.findings[0]
        text = (
            f"Step {first.step}, {first.phase} of '{first.variable}': wrong where XLA "
            f"compiles the step, and not where it is left out ({run.status})."
        )
        # A script that shows a number leaves XLA out.
        shown = replace(first, code="unexplained", explanation=text, outcome=None)
        return make_run(
            item,
            tier,
            found.status,
            seen.seconds + run.seconds,
            reference=seen.evidence[tier].reference,
            checked=found.checked,
            worst=found.worst,
            findings=self._find_origins(item, seen, tier, [shown]),
            references=found.references,
            details=self._keep(seen, seen.evidence[tier], found.compared),
        )

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
        return find_origins(findings, control.findings.get(tier, ()))

    def _confirm(
        self, item: Planned, seen: Observation, tier: Tier, findings: Sequence[Finding]
    ) -> tuple[Finding, ...]:
        """Confirm a cause once: each code in the first run that shows it."""
        folder, reference, first = seen.folder, seen.reference, findings[0]
        if folder is None or reference is None or tier == "free":
            return tuple(findings)
        # The first one in the plan, and not in time.
        self._lanes.wait_for_earlier(item.number)
        if first.code in self._tried:
            return tuple(findings)
        self._tried.add(first.code)
        evidence = seen.evidence[tier]

        def rerun(phase: Phase) -> Evidence:
            return observe_corrected(
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

        return confirm_first(findings, evidence, rerun)


def _measure_needs(items: Sequence[Planned]) -> Room:
    """What scenarios take while they run: their clusters come one after the other."""
    specs = [spec for item in items for spec in item.specs]
    return Room(
        tasks=max(len(spec.tasks) for spec in specs),
        gpu_tasks=max(spec.workers if spec.gpus_needed else 0 for spec in specs),
    )


def check_target(
    target: TargetRef, options: CheckOptions, progress: Progress | None = None
) -> Verdict:
    """Check a subject on every scenario that the options name.

    Args:
        target: The subject.
        options: Which scenarios to run.
        progress: Who wants to know how far it is.

    Raises:
        BadInputError: The subject or an option cannot be used; names the thing.
        ClusterError: The machine cannot start tasks at all.
    """
    with _open_checker(target, options, progress) as checker:
        return checker.run()


def check_each(target: TargetRef, options: CheckOptions) -> Mapping[str, Verdict]:
    """The same, as a verdict for each cluster spec of the options."""
    with _open_checker(target, options) as checker:
        verdict = checker.run()
        return {spec: verdict.on(checker.name(spec)) for spec in options.clusters}


@contextmanager
def _open_checker(
    target: TargetRef, options: CheckOptions, progress: Progress | None = None
) -> Iterator[Checker]:
    telling = Telling(progress)
    with (
        RunDirectory() as directory,
        open_engine(
            options.engine,
            list_clusters(options),
            jobs=options.jobs,
            allow_public=options.allow_public,
            log=telling.note,
        ) as engine,
    ):
        launch = make_launch(directory, options, engine, telling.note)
        is_far = options.engine != "local"
        own = adopt_target(target, directory.path, is_far=is_far)
        yield Checker(own, options, launch, telling)
