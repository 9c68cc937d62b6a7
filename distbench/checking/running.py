"""Runs planned scenarios, as often as it takes, and has them judged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from distbench.checking.expecting import apply_expectations
from distbench.checking.further import (
    find_late,
    go_on,
    list_further,
    tell_uncompared,
)
from distbench.checking.judging import Judging
from distbench.checking.kept import Kept
from distbench.checking.plan import Planned, list_possible
from distbench.checking.runs import (
    add_notes,
    add_time,
    end_uncompared,
    measure_time,
)
from distbench.errors import BadInputError, ClusterError, ShortEpochError
from distbench.late import Late, Looks
from distbench.machine import Machine
from distbench.observe import Launch, Observation, OneDevice, observe
from distbench.options import CheckOptions, list_tiers
from distbench.target import TargetRef
from distbench.verdict import Run, Status


class Running:
    """Makes the runs of scenarios.

    Args:
        target: The subject.
        options: Which scenarios were asked for, and what is kept and shown.
        launch: How their tasks are started.
        machine: Where.
        wait_for_earlier: Waits for the scenarios planned before one, by its number.

    Attributes:
        environments: Versions, devices and settings of the tasks of each scenario that
            was observed, by its number.
    """

    def __init__(
        self,
        target: TargetRef,
        options: CheckOptions,
        launch: Launch,
        machine: Machine,
        *,
        wait_for_earlier: Callable[[int], None],
    ) -> None:
        self.environments: dict[int, dict[str, object]] = {}
        self._target = target
        self._options = options
        self._launch = launch
        self._machine = machine
        self._tiers = list_tiers(options)
        self._judging = Judging(
            target,
            options,
            self._tiers,
            launch,
            wait_for_earlier=wait_for_earlier,
            observe_again=self._observe,
        )

    def run_one(
        self,
        item: Planned,
        one: OneDevice | None,
        kept: Kept,
        *,
        looks: Looks = "",
        late: Late | None = None,
    ) -> Iterator[Run]:
        """The runs of a scenario, and where it says what is late, of what it lacks.

        Args:
            item: The scenario.
            one: Has the single-device run, or will have it; None is one of its own.
            kept: Gets the traces by which they are judged.
            looks: See `observe`.
            late: What is not in its steps, where it was looked for before.

        Raises:
            BadInputError: The subject cannot be used.
            TooFewStepsError: Something is late, and that is heeded.
        """
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
            seen = self._observe(item, one, looks)
        except ShortEpochError as error:
            yield from self._run_shorter(item, error, kept)
            return
        if not isinstance(seen, Observation):
            yield from seen
            return
        self.environments.setdefault(item.number, {}).update(seen.environment)
        # What is expected ends nothing: the rest is looked at as of a run that passes.
        runs: Iterable[Run] = (
            apply_expectations(run, self._options.expect)
            for run in self._judging.judge(item, seen, kept)
        )
        if looks:
            late = seen.late
        if late is not None:
            few = replace(scenario, steps=self._options.count_steps(item.spec))
            unseen = list_further(few, seen, late, self._options)
            runs = go_on(item, runs, unseen, self._run_again, kept)
        yield from runs

    def run_longer(
        self, item: Planned, one: OneDevice, kept: Kept, late: Late, before_s: float
    ) -> Iterator[Run]:
        """Run a scenario with the steps that show what is late.

        Where they cannot be compared, its own are all there is.
        """
        lack, known = find_late(item.scenario, late), Late(ahead=late.ahead)
        longer = replace(item, scenario=replace(item.scenario, steps=late.steps))
        try:
            runs = tuple(self.run_one(longer, one, kept, late=known))
            why = tell_uncompared(runs)
        except BadInputError as error:
            runs, why = (), str(error)
        note = lack.seen
        if why:
            kept.clear()
            note, before_s = lack.tell_unended(why), before_s + measure_time(runs)
            runs = tuple(self.run_one(item, None, kept, late=known))
        yield from add_notes(add_time(runs, before_s), note)

    def _run_shorter(
        self, item: Planned, error: ShortEpochError, kept: Kept
    ) -> Iterator[Run]:
        """Take the steps that an epoch has: why it has no more is for them to show."""
        scenario = replace(item.scenario, steps=error.steps)
        note = (
            f"note: an epoch has {error.steps} steps on the cluster, which were taken "
            f"in place of {item.scenario.steps}, and more on one device"
        )
        runs = self._run_again(replace(item, scenario=scenario), kept)
        yield from add_notes(runs, note)

    def _observe(
        self, item: Planned, one: OneDevice | None = None, looks: Looks = ""
    ) -> Observation | tuple[Run, ...]:
        """What is seen of a scenario; its runs, where nothing can be."""
        scenario = item.scenario
        tiers = list_possible(self._tiers, scenario)
        start_s = time.monotonic()
        try:
            return observe(
                self._target,
                scenario,
                item.spec,
                tiers,
                self._launch,
                one,
                looks=looks,
            )
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

    def _run_again(self, item: Planned, kept: Kept) -> tuple[Run, ...]:
        return tuple(self.run_one(item, None, kept))
