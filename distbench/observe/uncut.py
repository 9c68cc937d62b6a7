"""The single-device run once more, with no variable in shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distbench.errors import BadInputError, ClusterError
from distbench.evidence import Tier
from distbench.observe.errand import Errand
from distbench.observe.launching import ONE
from distbench.observe.subject import ask_one
from distbench.trace import Trace
from distbench.trace.files import read_trace


def observe_uncut(
    errand: Errand, payload: Mapping[str, Any], tiers: Sequence[Tier]
) -> dict[Tier, Trace]:
    """What the steps of one device leave where no variable is cut.

    In a process of its own: a second build of a subject comes in the first one's way.

    Args:
        errand: What is run.
        payload: Of its jobs.
        tiers: Those that one device has run.

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
        with errand.launch.start_cluster(ONE, errand.opening) as group:
            ask_one(
                group, "uncut", asked, target=errand.target, deadline=errand.deadline
            )
    except BadInputError:
        return {}
    except ClusterError as error:
        errand.launch.log(f"A run with no variable in shards failed: {error}")
        return {}
    return {tier: read_trace(errand.folder, f"uncut-{tier}")}
