"""The single-device run once more, with no variable in shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from distbench.errors import BadInputError, ClusterError
from distbench.evidence import Tier
from distbench.launch.deadline import Deadline
from distbench.launch.start import Job
from distbench.observe.launching import ONE, Launch
from distbench.observe.subject import ask_one
from distbench.target import TargetRef
from distbench.trace import Trace
from distbench.trace.files import read_trace


def observe_uncut(
    target: TargetRef,
    payload: Mapping[str, Any],
    tiers: Sequence[Tier],
    opening: Job,
    launch: Launch,
    deadline: Deadline,
) -> dict[Tier, Trace]:
    """What the steps of one device leave where no variable is cut.

    In a process of its own: a second build of a subject comes in the first one's way.

    Args:
        target: The subject.
        payload: Of the scenario's jobs.
        tiers: Those that one device has run.
        opening: The first job of a task.
        launch: How tasks are started.
        deadline: That of the scenario.

    Returns:
        A trace for the first tier in which there is noise, since a norm of all is not
        that of its parts in the last digit. None of a subject that cannot do without
        shards.
    """
    tier = next((tier for tier in tiers if tier != "exact"), None)
    if tier is None:
        return {}
    asked = {**payload, "tiers": [tier]}
    try:
        with launch.start_cluster(ONE, opening) as group:
            ask_one(group, "uncut", asked, target=target, deadline=deadline)
    except BadInputError:
        return {}
    except ClusterError as error:
        launch.log(f"A run with no variable in shards failed: {error}")
        return {}
    return {tier: read_trace(Path(payload["folder"]), f"uncut-{tier}")}
