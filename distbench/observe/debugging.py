"""Runs one scenario up to a value at which a person looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TextIO

from distbench.cluster import ClusterSpec
from distbench.errors import BadInputError, ClusterError
from distbench.evidence import Tier
from distbench.launch.failure import TaskFailedError
from distbench.launch.terminal import Terminal
from distbench.observe.errand import Errand
from distbench.observe.launching import Launch
from distbench.observe.preparing import prepare_both, start_both
from distbench.scenario import Scenario
from distbench.stop import Stop, check_stoppable, stop_to_json
from distbench.target import TargetRef

_TIER: Tier = "bounded"
"""Each step starts from what one device has: what differs, this step made differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """What became of a stop.

    Attributes:
        stops: How often a prompt was opened.
        seen: Phase and variable of what came by in the step and replica instead.
        left: Whether the one at the prompt ended the run.
    """

    stops: int = 0
    seen: tuple[tuple[str, str], ...] = ()
    left: bool = False


def observe_stopped(
    target: TargetRef,
    scenario: Scenario,
    spec: ClusterSpec,
    launch: Launch,
    stop: Stop,
    streams: tuple[TextIO, TextIO],
) -> Stopped:
    """Run a scenario on one device, then on its cluster up to a stop.

    Args:
        target: The subject.
        scenario: What to run.
        spec: Its resolved cluster spec.
        launch: How tasks are started.
        stop: Where a prompt is opened.
        streams: What is typed, and where text goes.

    Raises:
        BadInputError: There is no such replica, the cluster's steps cannot be stopped,
            or the subject fails on one device already.
        ClusterError: A task failed.
    """
    _check_stop(stop, spec)
    scenario = replace(scenario, given_draws=stop.given_draws)
    errand = Errand.begin(target, scenario, spec, launch, "stopped")
    address = launch.directory.path / "terminal"
    payload = errand.make_payload(
        tiers=[_TIER], stop=stop_to_json(stop), terminal=str(address)
    )
    with (
        start_both(errand) as (one, trainers),
        Terminal(address, *streams) as terminal,
    ):
        try:
            _, wait_prepared = prepare_both(one, trainers, errand, payload)
            wait_prepared()
            answers = trainers.call("debug", payload)
        except TaskFailedError as error:
            if error.exception == "BdbQuit":
                return Stopped(left=True)
            terminal.check_sink()
            raise ClusterError(
                str(error), detail=error.detail or error.traceback
            ) from error
    return _join(list(answers.values()))


def _check_stop(stop: Stop, spec: ClusterSpec) -> None:
    check_stoppable(spec)
    if stop.replica >= spec.replicas:
        raise BadInputError(
            f"'{spec}' has the replicas 0 to {spec.replicas - 1}. "
            f"Received: {stop.replica}."
        )


def _join(answers: list[Mapping[str, object]]) -> Stopped:
    stops = [int(str(answer["stops"])) for answer in answers]
    seen = {tuple(item) for answer in answers for item in answer["seen"]}  # type: ignore[attr-defined]
    return Stopped(stops=sum(stops), seen=tuple(sorted(seen)))
