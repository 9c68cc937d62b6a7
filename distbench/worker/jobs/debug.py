"""The scenario on its cluster, stopped in a debugger where a value comes by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distbench.evidence import Tier
from distbench.scenario import scenario_from_json
from distbench.stop import stop_from_json
from distbench.trace import STATE, TraceKey, Value
from distbench.worker.jobs.folder import read_reference
from distbench.worker.jobs.task import Task
from distbench.worker.jobs.training import TrainingJobs
from distbench.worker.stepping.injected import FaultySteps
from distbench.worker.taps.debugger import Debugger
from distbench.worker.taps.given import select_state


class DebugJob:
    """Trains as `TrainingJobs` does, op by op and only up to one step."""

    def __init__(self, task: Task, training: TrainingJobs) -> None:
        self._task = task
        self._training = training

    def debug(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run the steps; answers how often it stopped, and what came by."""
        session = self._training.prepared.session
        stop = stop_from_json(payload["stop"])
        tier: Tier = payload["tiers"][0]
        reference = read_reference(payload, tier)
        self._training.take_names(reference)
        faulty = FaultySteps(session, scenario_from_json(payload["scenario"]).injected)
        with Debugger(stop, reference, payload["terminal"]) as debugger:
            session.board.watch = debugger.watch
            for step in range(stop.step + 1):
                self._task.report_progress(step=step, phase=tier)
                session.write_state(select_state(reference, tier, step))
                debugger.step = step
                values: dict[TraceKey, Value] = {}
                self._training.run_step(step, values, faulty.find(step))
                for key, value in values.items():
                    if key.phase in STATE:
                        debugger.look(key, value)
        return {"stops": debugger.stops, "seen": debugger.seen}
