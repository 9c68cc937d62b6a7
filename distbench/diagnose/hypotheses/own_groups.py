"""Replicas that add up the gradients of a group, each those of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from distbench.compare.arrays.ratio import are_same_factors
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.fit import fit_cases
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.replica_weights import fit_replica_weights
from distbench.diagnose.names import name_replicas
from distbench.trace import SUMMED

Kept = tuple[int, ...]
"""The replicas whose gradients are in a sum."""
_SHOWN = 4
"""So many groups are named."""


def explain_by_own_groups(context: Context) -> Iterator[Hypothesis]:
    """The sum over some of the replicas, and over others on other replicas.

    As where a sum over the groups, that follows those within each, is forgotten.
    """
    n = context.replicas
    if context.phase not in SUMMED or n < 3:
        return  # of two replicas a group is one, which nobody sums, or both
    groups = _find_groups(context)
    if len(set(groups.values())) < 2:
        return
    yield Hypothesis(
        code="replica-dropped",
        predicted={
            number: np.asarray(np.sum([terms[r] for r in kept], axis=0))
            for number, case in context.list_cases()
            if (kept := groups.get(case.key.replica))
            and (terms := context.find_terms(case))
        },
        detail=f"each {_name_holders(context, groups)} has the sum over "
        f"{_name_groups(groups)}",
    )


def explain_by_sums_of_groups(context: Context) -> Iterator[Hypothesis]:
    """The sum times k or 1/k, where replicas may be in groups of k.

    A sum within each group and then over all has every gradient k times, if all members
    of a group bring its sum, and a k-th of it, if that was a mean. The replicas' own
    gradients were seen, so the number is not in the loss.
    """
    n = context.replicas
    if context.phase != "reduced_gradient" or context.root:
        return
    cases = list(context.list_cases())
    fit = fit_cases(case for _, case in cases)
    if fit is None:
        return
    for size in (k for k in range(2, n) if n % k == 0):
        groups = f"groups of {size} of N = {n} replicas"
        for ratio, why, advice in (
            (
                float(size),
                f"the sums of {groups} are added up by all of their members",
                "have one member of each group bring it, or the others zeros; else "
                f"divide by {size}",
            ),
            (
                1 / size,
                f"{groups} each take a mean, and these are added up",
                "sum within the groups as well",
            ),
        ):
            if are_same_factors(fit.ratio, ratio):
                yield Hypothesis(
                    code="scale-error",
                    predicted={i: ratio * case.expected for i, case in cases},
                    detail=f"it is {ratio:.6g} times what it should be, as where {why}",
                    ratio=ratio,
                    of_due=True,
                    advice=f"If the sum is taken in such groups first, {advice}. Else "
                    "look for that number between the gradients and their sum.",
                )


def _find_groups(context: Context) -> Mapping[int, Kept]:
    """Of each replica that is wrong, whose gradients are in its sum."""
    groups = {}
    for replica, numbered in context.group_cases(lambda c: c.key.replica).items():
        cases = tuple(case for _, case in numbered)
        weights = fit_replica_weights(context.select(cases))
        if weights is not None:
            kept = np.flatnonzero(weights > np.max(weights) / 2)
            groups[replica] = tuple(int(r) for r in kept)
    return groups


def _name_holders(context: Context, groups: Mapping[int, Kept]) -> str:
    everyone = len(groups) == context.replicas
    return "replica" if everyone else f"of {name_replicas(groups)}"


def _name_groups(groups: Mapping[int, Kept]) -> str:
    """The groups, or over whom each replica sums where they overlap."""
    holders: dict[Kept, list[int]] = {}
    for replica, kept in groups.items():
        holders.setdefault(kept, []).append(replica)
    are_apart = all(list(kept) == sorted(held) for kept, held in holders.items())
    named = [
        name_replicas(kept)
        if are_apart
        else f"{name_replicas(held)} over {name_replicas(kept)}"
        for kept, held in holders.items()
    ]
    left = len(named) - _SHOWN
    shown = "; ".join([*named[:_SHOWN], *([f"and {left} more"] if left > 0 else [])])
    whose = "its own group" if are_apart else "some replicas"
    return f"{whose} alone, and not over all ({shown})"
