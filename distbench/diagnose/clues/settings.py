"""How it is told that optimizers have other settings than on one device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from distbench.compare.arrays.ratio import are_same_factors
from distbench.diagnose.names import name_replicas
from distbench.evidence import Evidence
from distbench.trace.settings import (
    OtherSetting,
    list_other_settings,
    list_positions,
)

_MOST = 3
"""Settings that are told with their numbers."""


def describe_settings(
    evidence: Evidence, found: Sequence[OtherSetting] | None = None
) -> str:
    """Which settings differ, and what they are; empty where none does.

    Args:
        evidence: What was seen.
        found: Those to tell; all that differ if None.
    """
    traces = evidence.observed, evidence.reference
    if found is None:
        found = list_other_settings(*traces)
    # Of a single one that differs nobody knows which it is.
    is_one = len(list_positions(*traces)) == 1
    told = [_describe(evidence, other, is_one=is_one) for other in found[:_MOST]]
    if more := len(found) - len(told):
        told.append(f"{more} more differ")
    return " and ".join([", ".join(told[:-1]), told[-1]] if len(told) > 1 else told)


def list_untried(evidence: Evidence) -> tuple[OtherSetting, ...]:
    """The settings that differ and that one device could not take, or was not given."""
    found = list_other_settings(evidence.observed, evidence.reference)
    if evidence.fed.configured is None:
        return found
    paths = cast(Sequence[str], evidence.fed.configured.notes["untried"])
    return tuple(other for other in found if other.path in paths)


def find_times(other: OtherSetting) -> float | None:
    """By what a number was multiplied; None of what is no number, or by no length."""
    seen, due = other.seen, other.due
    if isinstance(seen, (bool, str)) or isinstance(due, (bool, str)):
        return None
    return seen / due if seen and due and seen / due > 0 else None


def tell_as_much(evidence: Evidence, times: float) -> str:
    """Settings that one device did not try and that differ by a factor, as a clause.

    What is made of the number of replicas, as a count of steps in an epoch, has the
    factors that mistakes with that number have: that they are equal proves nothing.
    """
    found = [
        other
        for other in list_untried(evidence)
        if (factor := find_times(other)) is not None and are_same_factors(times, factor)
    ]
    if not found:
        return ""
    words = describe_settings(evidence, found)
    return f"; by as much a setting differs, which need not lead that: {words}"


def list_odd_owners(evidence: Evidence) -> frozenset[str]:
    """The variables of which the optimizers of one side alone keep some slot."""
    seen, due = (
        {key.variable: trace.by_path for key in trace.values if key.phase == "slot"}
        for trace in (evidence.observed, evidence.reference)
    )
    odd = [(path, {**seen, **due}[path]) for path in seen.keys() ^ due.keys()]
    owners = (infos[path].of for path, infos in odd if path in infos)
    return frozenset(filter(None, owners))


def _describe(evidence: Evidence, other: OtherSetting, *, is_one: bool) -> str:
    position, name = _part(other)
    whose = "the optimizer" if is_one else f"optimizer {position}"
    is_everywhere = len(other.replicas) == evidence.observed.replicas
    where = "the cluster" if is_everywhere else name_replicas(other.replicas)
    seen, due = map(_tell, (other.seen, other.due))
    return f"'{name}' of {whose} is {seen} on {where} and {due} on one device"


def _part(other: OtherSetting) -> tuple[str, str]:
    position, _, name = other.path.partition(".")
    return position, name


def _tell(setting: object) -> str:
    return f"{setting:.8g}" if isinstance(setting, float) else repr(setting)
