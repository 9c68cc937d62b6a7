"""Checks a subject: has its scenarios observed and judged."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import groupby

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
from distbench.checking.running import Running
from distbench.checking.runs import end_uncompared
from distbench.checking.telling import Telling
from distbench.errors import NOT_JUDGED, describe_end
from distbench.late import Looks, TooFewStepsError
from distbench.launch.engine import Room
from distbench.launch.group import Group
from distbench.machine import Machine, describe_bench
from distbench.observe import Launch, OneDevice, describe_subject, start_one
from distbench.options import (
    CheckOptions,
    Progress,
    list_tiers,
)
from distbench.target import TargetRef
from distbench.verdict import Run, Status, Verdict
from distbench.xla import XLA_FLAGS

_RunOne = Callable[[Planned, OneDevice, Kept], Iterable[Run]]


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
        self._opening: dict[str, object] = {}
        self._planned: Sequence[Planned] = ()
        self._judged: dict[int, list[Run]] = {}
        self._ended: set[int] = set()
        self._lanes: Lanes[None] = Lanes(
            options.jobs, launch.engine.find_room(), launch.halt
        )
        self._tiers = list_tiers(options)
        self._machine: Machine = launch.engine.inspect()
        self._running = Running(
            target,
            options,
            launch,
            self._machine,
            wait_for_earlier=self._lanes.wait_for_earlier,
        )

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
            self._opening = dict(opened["environment"])
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
        environment = describe_bench(self._options.engine) | self._opening
        for _, found in sorted(self._running.environments.items()):
            environment |= found
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
        try:
            looks: Looks = "heeded" if self._options.steps is None else "told"
            self._tell_each(items, group, partial(self._running.run_one, looks=looks))
        except TooFewStepsError as short:
            left = [item for item in items if item.number not in self._ended]
            before_s = short.seconds / len(left)
            run_longer = partial(
                self._running.run_longer, late=short.late, before_s=before_s
            )
            self._tell_each(left, None, run_longer)

    def _tell_each(
        self, items: Sequence[Planned], group: Group | None, run_one: _RunOne
    ) -> None:
        with closing(OneDevice(self._launch, group, scenarios=len(items))) as one:
            for item in items:
                self._progress.start(item.scenario.id)
                kept = Kept.find(self._options.keep, item.scenario.id)
                kept.clear()
                for run in run_one(item, one, kept):
                    self._judged.setdefault(item.number, []).append(run)
                    self._progress.finish(run)
                self._ended.add(item.number)


def _measure_needs(items: Sequence[Planned]) -> Room:
    """What scenarios take while they run: their clusters come one after the other."""
    specs = [spec for item in items for spec in item.specs]
    return Room(
        tasks=max(len(spec.tasks) for spec in specs),
        gpu_tasks=max(spec.workers if spec.gpus_needed else 0 for spec in specs),
    )
