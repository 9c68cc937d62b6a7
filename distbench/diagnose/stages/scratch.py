"""Wrong state that a step uses as scratch paper, of which it makes what is right.

A gradient may be kept as its mean over the replicas, of which an optimizer then adds up
N: the state holds an N-th of what one device holds there, and the sum is right. Of what
is assigned anew in each step nothing else comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from distbench.compare.arrays.ratio import SAME, are_same_factors, fit_common_ratio
from distbench.compare.arrays.values import Array, densify, measure_size
from distbench.compare.comparison import Judged
from distbench.diagnose.stages.links import Chain
from distbench.evidence import Evidence
from distbench.trace import INITIAL, SUMMED, UPDATED, WHOLE, Trace, TraceKey

_Kept = list[tuple[Array, Array]]
"""Sums of some steps, each with what the state holds that they may be made of."""


def list_scratch(evidence: Evidence) -> frozenset[str]:
    """Paths of state that a step assigns before it uses it, and that is not trained."""
    infos = evidence.observed.variables
    paths = frozenset(info.path for info in infos if info.is_scratch)
    return paths - evidence.observed.trained


def forgive_scratch(evidence: Evidence, chain: Chain) -> Chain:
    """A chain in which such state is forgiven, as long as nothing else is wrong.

    It has to be what the replicas add up to the sum. Any other number may be there for
    a limit, say, that no step of this run reaches.
    """
    paths = list_scratch(evidence)
    if not any(link.comparison.variable in paths for link in chain.broken):
        return chain
    passed = frozenset(path for path in paths if _is_passed_on(evidence, path))
    wrong = (*chain.broken, *chain.undecided, *chain.following, *chain.apart)
    others = [j.comparison.step for j in wrong if not _is_of(j, passed)]
    first = min(others, default=evidence.observed.steps)
    forgiven = [
        link
        for link in chain.broken
        if _is_of(link, passed) and link.comparison.step < first
    ]
    return replace(
        chain,
        broken=tuple(link for link in chain.broken if link not in forgiven),
        forgiven=(*chain.forgiven, *forgiven),
    )


def _is_of(link: Judged, paths: frozenset[str]) -> bool:
    c = link.comparison
    return c.phase in UPDATED and c.step != INITIAL and c.variable in paths


def _is_passed_on(evidence: Evidence, path: str) -> bool:
    """Whether sums are made of what replicas hold, as one device's of what that holds.

    Of a mean over N replicas they are N times as large a multiple.
    """
    info = evidence.observed.by_path[path]
    n = evidence.observed.replicas
    for variable in sorted(evidence.observed.trained):
        if info.of not in ("", variable):
            continue
        alone = _find_multiple(list(_list_kept(evidence.reference, path, variable)))
        if alone is None:
            continue
        seen = [
            _find_multiple(list(_list_kept(evidence.observed, path, variable, replica)))
            for replica in range(n)
        ]
        found = [ratio for ratio in seen if ratio is not None]
        if found and all(are_same_factors(ratio, n * alone) for ratio in found):
            return True
    return False


def _list_kept(
    trace: Trace, path: str, variable: str, replica: int = WHOLE
) -> Iterator[tuple[Array, Array]]:
    """The sums of a variable with what state holds after the steps that take them."""
    role = trace.by_path[path].role if path in trace.by_path else "slot"
    for step in range(trace.steps):
        state = TraceKey(step=step, phase=role, variable=path, replica=replica)
        held = trace.get(state)
        for phase in SUMMED:
            total = trace.get(replace(state, phase=phase, variable=variable))
            if held is not None and total is not None and held.shape == total.shape:
                yield densify(total), densify(held)
                break


def _find_multiple(kept: _Kept) -> float | None:
    """By what number all that was held was multiplied; None if it was not."""
    fit = fit_common_ratio(kept)
    if fit is None or fit.ratio == 0:
        return None
    is_all = all(
        measure_size(total - fit.ratio * held) <= SAME * measure_size(total)
        for total, held in kept
    )
    return fit.ratio if is_all else None
