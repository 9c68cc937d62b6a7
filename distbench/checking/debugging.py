"""Has one scenario stop in a debugger: plans it, and runs it up to the stop."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TextIO

from distbench.checking.launches import make_launch
from distbench.checking.own_keras import follow_target
from distbench.checking.plan import plan_scenarios
from distbench.errors import BadInputError
from distbench.fault import Fault
from distbench.launch.rundir import RunDirectory
from distbench.machine import inspect_machine
from distbench.observe import describe_subject, start_one
from distbench.observe.debugging import Stopped, observe_stopped
from distbench.options import CheckOptions
from distbench.stop import Stop
from distbench.target import TargetRef, adopt_target
from distbench.xla import XLA_FLAGS


def debug_target(
    target: TargetRef,
    options: CheckOptions,
    stop: Stop,
    streams: tuple[TextIO, TextIO],
) -> Stopped:
    """Run the first scenario that the options name, up to a stop.

    Args:
        target: The subject.
        options: Of a check; steps and tiers are those of the stop.
        stop: Where a prompt is opened.
        streams: What is typed, and where text goes.

    Raises:
        BadInputError: The subject, an option or the stop cannot be used.
        ClusterError: A task failed.
    """
    options = end_at(options, stop)

    def attempt(options: CheckOptions) -> Stopped:
        return _debug(target, options, stop, streams)

    return follow_target(options, attempt)


def end_at(options: CheckOptions, stop: Stop) -> CheckOptions:
    """The options of a run that ends at a stop: nothing befalls it after that."""
    faults = map(Fault.parse, options.faults)
    steps = stop.step + 1
    return replace(
        options,
        # Of two clusters that train alike nothing is restored; one more is not run.
        steps=steps + 1 if steps == options.restore_after else steps,
        faults=tuple(str(f) for f in faults if f.task is None and f.step <= stop.step),
    )


def _debug(
    target: TargetRef,
    options: CheckOptions,
    stop: Stop,
    streams: tuple[TextIO, TextIO],
) -> Stopped:
    machine = inspect_machine()
    with RunDirectory() as directory:
        target = adopt_target(target, directory.path, is_far=False)
        launch = make_launch(directory, options)
        with start_one(launch, options.seed, options.jit) as one:
            kind, _ = describe_subject(
                target, one, launch.give_time(options.deadline_s)
            )
        flags = os.environ.get(XLA_FLAGS, "")
        [planned, *_] = plan_scenarios(
            target.describe(), kind, options, machine, xla_flags=flags
        )
        if lack := machine.find_lack(planned.spec):
            raise BadInputError(f"'{planned.spec}' cannot run here: {lack}.")
        return observe_stopped(
            target, planned.scenario, planned.spec, launch, stop, streams
        )
