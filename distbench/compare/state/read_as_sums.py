"""State of the replicas' own that is read as the sum of its copies, and not judged."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import groupby

import numpy as np

from distbench.compare.arrays.changes import Changes, list_changes
from distbench.compare.arrays.noise import Noise
from distbench.compare.arrays.ratio import SAME
from distbench.compare.state.totals import find_allowed
from distbench.evidence import Evidence
from distbench.trace.numbers import are_equal, measure_size


def list_in_full(evidence: Evidence) -> tuple[str, ...]:
    """Variables read as the sum of their copies, each of which gains all of the gain.

    A count that every replica of N moves on by one is read as N times what one device
    counts. What divides by such a count is right nevertheless, as in a metric, so that
    what metrics show is left to them.
    """
    found: dict[str, bool] = {}
    for changes in _list_sums(evidence):
        if np.any(changes.whole.change):
            path = changes.info.path
            found[path] = found.get(path, True) and _is_full(changes)
    return tuple(path for path, is_full in found.items() if is_full)


def find_dealt_out(
    evidence: Evidence, noise: Noise, judged: Collection[tuple[str, int]]
) -> tuple[str, int] | None:
    """A variable whose copies make up another gain than one device's, unjudged.

    What shards alone leave makes up nothing either, as of a quotient of counts: nobody
    knows whether that is meant.

    Args:
        evidence: What was seen.
        noise: Of the single-device run.
        judged: Variables that were held against something, and the steps.

    Returns:
        The variable, and the first such step; None where there is none.
    """
    for path, group in groupby(_list_sums(evidence), lambda c: c.info.path):
        steps = list(group)
        # Of a gain that cancels all is rounding, which one step may happen not to show.
        rounding = find_allowed(noise, steps[-1], steps[-1].replicas)
        for changes in steps:
            gain, step = changes.whole.change, changes.key.step
            if (path, step) in judged or _is_full(changes):
                continue
            gained = np.sum([copy.change for copy in changes.replicas], axis=0)
            allowed = SAME * measure_size(gain) + rounding
            # Something may count the updates, and divide by them.
            may_be = (gained, gained / len(changes.replicas))
            if all(np.any(np.abs(each - gain) > allowed) for each in may_be):
                return path, step
    return None


def _list_sums(evidence: Evidence) -> Iterator[Changes]:
    """Of metrics, what they show tells."""
    shown = evidence.observed.metric_paths
    for changes in list_changes(evidence):
        is_sum = changes.info.adds_up and changes.info.path not in shown
        if is_sum and len(changes.replicas) > 1:
            yield changes


def _is_full(changes: Changes) -> bool:
    gain = changes.whole.change
    return all(are_equal(copy.change, gain) for copy in changes.replicas)
