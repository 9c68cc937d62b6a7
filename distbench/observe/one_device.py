"""The task with one device, and the run there by which scenarios are judged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from distbench.errors import ClusterError
from distbench.launch.group import Group
from distbench.observe.errand import Errand
from distbench.observe.launching import ONE, Launch
from distbench.observe.subject import ObserverError, ask_one, submit_one
from distbench.trace.shelf import Shelf


class OneDevice:
    """A task with one device, for scenarios that have the same run there.

    It serves one after the other, and computes that run for the first one alone. Where
    something failed another task takes its place.

    Args:
        launch: How the task is started.
        group: The task, where there is one already that has computed nothing yet.
        scenarios: How many it is for; after the last one it is asked to end.
    """

    def __init__(
        self, launch: Launch, group: Group | None = None, *, scenarios: int = 1
    ) -> None:
        self._launch = launch
        self._group = group
        self._left = scenarios
        self._is_shared = scenarios > 1
        self._folder: Path | None = None
        self._answer: Mapping[str, Any] | None = None
        self._wait: Callable[[], Mapping[str, Any]] | None = None
        self._probes: Mapping[str, Any] | None = None
        self._spec = ONE

    def find_folder(self, folder: Path) -> Path:
        """Where the traces of its run are.

        Beside those of the only scenario, since equal content is stored once in a
        folder; those of several would come in each other's way.

        Args:
            folder: That of the scenario that asks.
        """
        if not self._is_shared:
            return folder
        if self._folder is None:
            name = f"reference-{time.monotonic_ns()}"
            self._folder = self._launch.directory.make_folder(name)
        return self._folder

    @contextmanager
    def serve(self, errand: Errand) -> Iterator[Group]:
        """Its task, for one scenario."""
        is_other, self._spec = errand.one != self._spec, errand.one
        if self._group is None or self._group.closed or is_other:
            self._group = self._launch.start_cluster(errand.one, errand.opening)
            self._answer = self._wait = self._probes = None
        self._left -= 1
        with ExitStack() as ending:
            ending.push(self._group)
            yield self._group
            if self._left == 0:
                self._group.dismiss()
            ending.pop_all()

    @property
    def _served(self) -> Group:
        if self._group is None:
            raise RuntimeError("a run on one device was asked for outside of serve()")
        return self._group

    def make_reference(
        self, errand: Errand, payload: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """What its task answers when it has run the scenario that it serves.

        Args:
            errand: What is run.
            payload: Of its jobs.

        Raises:
            BadInputError: The subject fails on one device already.
            ClusterError: The bench's own part failed.
        """
        if self._answer is None:
            self._answer = self._ask("reference", errand, payload)
        return self._answer

    def plan_rounds(
        self, errand: Errand, payload: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """What its task answers when it has run the rounds of steps in flight.

        See `make_reference` for the arguments and the errors.
        """
        return self._ask("plan_rounds", errand, payload)

    def _ask(
        self, job: str, errand: Errand, payload: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Run a job, and if the bench's own code raises amid the subject's, without it.

        What the subject gave that code, in place of TensorFlow's, may have made it
        fail: then the subject fails where the bench does not observe it as well.
        """
        target, deadline = errand.target, errand.deadline
        try:
            return ask_one(self._served, job, payload, target=target, deadline=deadline)
        except ObserverError:
            self.replace()
            # Who watches it may be wanting there: then the first error stays.
            with (
                suppress(ClusterError),
                self._launch.start_cluster(errand.one, errand.opening) as group,
            ):
                own = {**payload, "alone": True}
                ask_one(group, job, own, target=target, deadline=deadline)
            raise

    def read_alone(self, errand: Errand, payload: Mapping[str, Any]) -> None:
        """See whether the subject's input pipeline can be read on one device.

        Args:
            errand: What is run.
            payload: Of its jobs.

        Raises:
            BadInputError: It fails there already.
            ClusterError: The bench's own part failed.
        """
        target, deadline = errand.target, errand.deadline
        ask_one(self._served, "read", payload, target=target, deadline=deadline)
        self.replace()  # the next run builds the subject in a process of its own

    def begin_probes(self, errand: Errand, payload: Mapping[str, Any]) -> None:
        """Have its task run what the judge asks of it besides, while a cluster trains.

        Args:
            errand: What is run.
            payload: Of its jobs, with the tiers that the reference ran.
        """
        if self._wait is None:
            target, deadline = errand.target, errand.deadline
            self._wait = submit_one(
                self._served, "probe", payload, target=target, deadline=deadline
            )

    def finish_probes(self) -> Mapping[str, Any]:
        """What its task answers to that.

        Raises:
            BadInputError: The subject fails on one device already.
            ClusterError: The bench's own part failed.
        """
        if self._wait is None:
            raise RuntimeError("probes were not begun")
        if self._probes is None:
            self._probes = self._wait()
        return self._probes

    def give_up(self) -> None:
        """Ask its task no more where it has not answered yet."""
        if self._group is not None and self._wait is not None and self._probes is None:
            self._group.close(polite=False)

    def replace(self) -> None:
        """Have another task for the next scenario."""
        if self._group is not None:
            self._group.close()

    def close(self) -> None:
        """End its task, and remove the large arrays of a run that was shared."""
        self.replace()
        if self._folder is not None:
            Shelf(self._folder).clear()
