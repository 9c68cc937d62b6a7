"""Checks a subject: has its scenarios observed and judged."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import groupby

from distbench.checking.expecting import apply_expectations
from distbench.checking.further import go_on, list_further
from distbench.checking.judging import Judging
from distbench.checking.kept import Kept
from distbench.checking.lanes import Lanes, Piece
from distbench.checking.plan import (
    Planned,
    check_only,
    expect_machine,
    list_possible,
    name_cluster,
    plan_scenarios,
    tell_ignored,
)
from distbench.checking.runs import add_note, end_uncompared
from distbench.checking.telling import Telling
from distbench.errors import (
    NOT_JUDGED,
    BadInputError,
    ClusterError,
    ShortEpochError,
    describe_end,
)
from distbench.launch.engine import Room
from distbench.launch.group import Group
from distbench.machine import Machine, describe_bench
from distbench.observe import (
    Launch,
    Observation,
    OneDevice,
    describe_subject,
    observe,
    start_one,
)
from distbench.options import (
    CheckOptions,
    Progress,
    list_tiers,
)
from distbench.target import TargetRef
from distbench.verdict import Run, Status, Verdict
from distbench.xla import XLA_FLAGS

_BEFORE_ALL = -1
"""The place, before those of all scenarios, of what the subject was described on."""


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
        self._planned: Sequence[Planned] = ()
        self._judged: dict[int, list[Run]] = {}
        self._ended: set[int] = set()
        self._lanes: Lanes[None] = Lanes(
            options.jobs, launch.engine.find_room(), launch.halt
        )
        self._tiers = list_tiers(options)
        self._judging = Judging(
            target,
            options,
            self._tiers,
            launch,
            wait_for_earlier=self._lanes.wait_for_earlier,
            observe_again=self._observe,
        )
        self._machine: Machine = launch.engine.inspect()

    def name(self, cluster: str) -> str:
        """What a cluster spec of the options is called in the verdict."""
        return name_cluster(cluster, expect_machine(self._options, self._machine))

    def run(self) -> Verdict:
        """Run every scenario; returns what was found."""
        check_only(self._target.describe(), self._options, self._machine)
        group = start_one(self._launch, self._options.seed, self._options.jit)
        with group:
            # Where all scenarios are left out nobody else tells of versions.
            (opened,) = group.first.values()
            self._environments[_BEFORE_ALL] = dict(opened["environment"])
            kind, is_fresh = describe_subject(
                self._target, group, self._launch.give_time(self._options.deadline_s)
            )
            label = self._target.describe()
            if ignored := tell_ignored(label, kind, self._options):
                self._launch.log(ignored)
            planned = plan_scenarios(
                label,
                kind,
                self._options,
                self._machine,
                xla_flags=os.environ.get(XLA_FLAGS, ""),
            )
            return self._run_all(planned, group if is_fresh else None)

    def _run_all(self, planned: Sequence[Planned], group: Group | None) -> Verdict:
        self._planned = planned
        self._progress.plan([item.scenario for item in planned])
        alike = [list(items) for _, items in groupby(planned, key=self._find_reference)]
        self._lanes.run(
            [
                Piece(
                    needs=_measure_needs(items),
                    work=partial(self._tell_all, items, None if place else group),
                )
                for place, items in enumerate(alike)
            ]
        )
        return self._make_verdict(run for item in planned for run in self._find(item))

    def end_early(self, error: BaseException) -> Verdict | None:
        """What was judged until an exception ended the check; None before any plan.

        What was not is an error that says so: a pass, or a part that is left out, would
        read as if the whole check had come to it.
        """
        if not self._planned:
            return None
        return self._make_verdict(
            run
            for item in self._planned
            for run in (*self._find(item), *self._end_unjudged(item, error))
        )

    def _find(self, item: Planned) -> Sequence[Run]:
        return self._judged.get(item.number, ())

    def _end_unjudged(self, item: Planned, error: BaseException) -> Iterator[Run]:
        if item.number in self._ended:
            return  # of the tiers that it could have, it has them all
        judged = {run.tier for run in self._find(item)}
        possible = list_possible(self._tiers, item.scenario)
        tiers = [tier for tier in possible if tier not in judged]
        yield from end_uncompared(
            item, tiers, Status.ERROR, message=NOT_JUDGED + describe_end(error)
        )

    def _make_verdict(self, runs: Iterable[Run]) -> Verdict:
        environment = describe_bench(self._options.engine)
        for number in sorted(self._environments):
            environment |= self._environments[number]
        return Verdict(
            target=self._target.describe(),
            runs=tuple(runs),
            environment=environment,
        )

    def _find_reference(self, item: Planned) -> object:
        """What tells whether two scenarios share their single-device run.

        With several lanes none do: they would wait for each other.
        """
        return item.reference if self._options.jobs == 1 else item.number

    def _tell_all(self, items: Sequence[Planned], group: Group | None) -> None:
        """Run scenarios with the same single-device run, and tell of them."""
        with closing(OneDevice(self._launch, group, scenarios=len(items))) as one:
            for item in items:
                self._progress.start(item.scenario.id)
                kept = Kept.find(self._options.keep, item.scenario.id)
                kept.clear()
                for run in self._run_one(item, one, kept):
                    self._judged.setdefault(item.number, []).append(run)
                    self._progress.finish(run)
                self._ended.add(item.number)

    def _run_one(
        self, item: Planned, one: OneDevice | None, kept: Kept, *, further: bool = True
    ) -> Iterator[Run]:
        scenario = item.scenario
        tiers = list_possible(self._tiers, scenario)
        found = (
            self._machine.find_lack(spec, steps=scenario.steps) for spec in item.specs
        )
        lacks = [lack for lack in found if lack]
        if lacks:
            too_few = self._options.require_gpus > self._machine.gpus
            status = Status.ERROR if too_few else Status.SKIPPED
            yield from end_uncompared(item, tiers, status, message=lacks[0])
            return
        try:
            seen = self._observe(item, one)
        except ShortEpochError as error:
            yield from self._run_shorter(item, error, kept)
            return
        if not isinstance(seen, Observation):
            yield from seen
            return
        self._environments.setdefault(item.number, {}).update(seen.environment)
        # What is expected ends nothing: the rest is looked at as of a run that passes.
        runs: Iterable[Run] = (
            apply_expectations(run, self._options.expect)
            for run in self._judging.judge(item, seen, kept)
        )
        if further:
            unseen = list_further(scenario, seen, self._options)
            runs = go_on(item, runs, unseen, self._run_again, kept)
        yield from runs

    def _run_shorter(
        self, item: Planned, error: ShortEpochError, kept: Kept
    ) -> Iterator[Run]:
        """Take the steps that an epoch has: why it has no more is for them to show."""
        scenario = replace(item.scenario, steps=error.steps)
        note = (
            f"note: an epoch has {error.steps} steps on the cluster, which were taken "
            f"in place of {item.scenario.steps}, and more on one device"
        )
        for run in self._run_again(replace(item, scenario=scenario), kept):
            yield add_note(run, note)

    def _observe(
        self, item: Planned, one: OneDevice | None = None
    ) -> Observation | tuple[Run, ...]:
        """What is seen of a scenario; its runs, where nothing can be."""
        scenario = item.scenario
        tiers = list_possible(self._tiers, scenario)
        start_s = time.monotonic()
        try:
            seen = observe(self._target, scenario, item.spec, tiers, self._launch, one)
        except BadInputError as error:
            if not item.optional:
                raise
            message = f"need an optimizer that takes sparse gradients ({error})"
            return tuple(end_uncompared(item, tiers, Status.SKIPPED, message=message))
        except ClusterError as error:
            return tuple(
                end_uncompared(
                    item,
                    tiers,
                    Status.ERROR,
                    seconds=time.monotonic() - start_s,
                    message=str(error),
                    detail=error.detail,
                )
            )
        return seen

    def _run_again(self, item: Planned, kept: Kept) -> tuple[Run, ...]:
        return tuple(self._run_one(item, None, kept, further=False))


def _measure_needs(items: Sequence[Planned]) -> Room:
    """What scenarios take while they run: their clusters come one after the other."""
    specs = [spec for item in items for spec in item.specs]
    return Room(
        tasks=max(len(spec.tasks) for spec in specs),
        gpu_tasks=max(spec.workers if spec.gpus_needed else 0 for spec in specs),
    )
