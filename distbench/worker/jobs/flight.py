"""Many steps in flight: planned on one device, flown on the cluster, followed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from distbench.scenario import scenario_from_json
from distbench.trace.archive import read_arrays, write_arrays
from distbench.trace.files import read_trace, write_trace
from distbench.worker.in_flight.packed import LOOKUP, read_lookups
from distbench.worker.in_flight.rounds import Rounds, fly
from distbench.worker.jobs.control import write_control
from distbench.worker.jobs.task import Task
from distbench.worker.jobs.training import TrainingJobs
from distbench.worker.one_device.reference import Reference
from distbench.worker.subjects.batches import check_batches, digest_batch
from distbench.worker.taps.collect import State

_LOOKUPS = "lookups.npz"


class FlightJobs:
    """Jobs of either side of a run with steps in flight."""

    def __init__(self, task: Task, training: TrainingJobs) -> None:
        self._task = task
        self._training = training
        self._rounds: Rounds | None = None

    def plan_rounds(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run the rounds of steps in flight on one device, in the order of schedule."""
        scenario = scenario_from_json(payload["scenario"])
        session = self._task.make_session(payload, scenario)
        session.program.check_in_flight()
        # Before any step has run.
        lookups = read_lookups(session.program.lookup_tables())
        reference = Reference(session, scenario, payload["replicas"])
        self._rounds = Rounds(reference, lookups)
        folder = Path(payload["folder"])
        starts, commutes = self._rounds.plan()
        digests = [
            digest_batch(reference.draw(step)) for step in range(scenario.scheduled)
        ]
        notes = {
            **starts.notes,
            "batches": digests,
            "torn": self._rounds.torn,
            "led": self._rounds.led,
            "sparse": self._rounds.has_sparse,
        }
        write_trace(replace(starts, notes=notes), folder, "starts")
        _write_lookups(self._rounds.list_lookups(), folder)
        return {
            "commutes": commutes,
            "control": write_control(session, folder, keeps_descent=True),
        }

    def fly(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run the rounds on the cluster; writes the trace `flown`."""
        session = self._training.prepared.session
        scenario = scenario_from_json(payload["scenario"])
        folder = Path(payload["folder"])
        starts = read_trace(folder, "starts")
        self._training.take_names(starts)
        with session.guard("data"):
            check_batches(session.program, starts)
        flown = fly(
            session,
            scenario,
            starts,
            _read_lookups(folder, scenario.steps),
            lambda step, worker: self._task.report_progress(
                step=step,
                phase=f"in flight on worker-{worker}",
                waits=step in payload["waits"],
            ),
        )
        write_trace(flown, folder, "flown")
        return {}

    def follow_rounds(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run the rounds in orders that the cluster's steps may have had."""
        if self._rounds is None:
            raise RuntimeError("follow_rounds was asked for before plan_rounds")
        folder = Path(payload["folder"])
        followed = self._rounds.follow(read_trace(folder, "flown"))
        for number, trace in enumerate(followed.orders):
            write_trace(trace, folder, f"order-{number}")
        for place, trace in followed.lost.items():
            write_trace(trace, folder, f"lost-{place}")
            write_trace(followed.again[place], folder, f"again-{place}")
        for number, trace in enumerate(followed.stale):
            write_trace(trace, folder, f"stale-{number}")
        return {
            "orders": len(followed.orders),
            "left_out": list(followed.lost),
            "stale": len(followed.stale),
        }


def _write_lookups(starts: Sequence[State], folder: Path) -> None:
    """Write what lookup tables hold before each round."""
    arrays: dict[str, Any] = {
        f"{number}.{place}": held
        for number, start in enumerate(starts)
        for (_, place), held in start.items()
    }
    write_arrays(arrays, folder / _LOOKUPS)


def _read_lookups(folder: Path, rounds: int) -> list[State]:
    starts: list[State] = [{} for _ in range(rounds)]
    for name, held in read_arrays(folder / _LOOKUPS).items():
        number, place = map(int, name.split("."))
        starts[number][LOOKUP, place] = held
    return starts
