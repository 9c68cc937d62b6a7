"""Wrong state that a step uses as scratch paper, of which it makes what is right.

A gradient may be kept as its mean over the replicas, of which an optimizer then adds up
N: the state holds an N-th of what one device holds there, and the sum is right. Of what
is assigned anew in each step nothing else comes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import cast

from distbench.compare.arrays.ratio import fit_multiple
from distbench.compare.comparison import Judged
from distbench.diagnose.stages.held_values import is_as_held
from distbench.diagnose.stages.links import Chain, judge_chain, sort_key
from distbench.evidence import Evidence
from distbench.trace import INITIAL, SUMMED, UPDATED, WHOLE, Trace


def list_scratch(evidence: Evidence) -> frozenset[str]:
    """Paths of state that a step assigns before it uses it, and that is not trained."""
    infos = evidence.observed.variables
    paths = frozenset(info.path for info in infos if info.is_scratch)
    return paths - evidence.observed.trained


def judge_with_scratch(evidence: Evidence, judged: Sequence[Judged]) -> Chain:
    """The chain of all links, in which such state is forgiven that does no harm.

    One device takes each step with what the replicas hold there. What is wrong and does
    not come of it, as a counter that runs twice as fast, does not speak against it.
    What the step limits or compares, though, or something may look at later, is
    undecided: whether that is done right other numbers might show.

    Args:
        evidence: What was observed and expected.
        judged: All comparisons.
    """
    infos, free = evidence.observed.by_path, evidence.tier == "free"
    chain = judge_chain(judged, infos, free=free)
    known = list_scratch(evidence)
    own = [link for link in chain.wrong if _is_of(link, known)]
    if not any(_is_of(link, known) for link in chain.broken):
        return chain
    paths = frozenset(link.comparison.variable for link in own)
    held = _find_held(evidence, paths)
    spoilt = _list_spoilt(evidence, held, judged, chain, paths)
    if free and spoilt:
        return chain
    own = [link for link in own if link.comparison.step not in spoilt]
    rest = [j for j in judged if not _is_of(j, paths) or j.comparison.step in spoilt]
    chain = judge_chain(rest, infos, free=free)
    decided = [path for path in paths if infos[path].decided_by]
    return replace(
        chain,
        forgiven=_sort(*chain.forgiven, *(j for j in own if not _is_of(j, decided))),
        undecided=_sort(*chain.undecided, *(j for j in own if _is_of(j, decided))),
    )


def _sort(*links: Judged) -> tuple[Judged, ...]:
    return tuple(sorted(links, key=sort_key))


def _is_of(link: Judged, paths: Collection[str]) -> bool:
    c = link.comparison
    return c.phase in UPDATED and c.step != INITIAL and c.variable in paths


def _find_held(evidence: Evidence, paths: Collection[str]) -> Trace | None:
    """Steps of one device in which it holds the cluster's of all this state."""
    held = evidence.fed.scratch
    known = () if held is None else cast(Sequence[str], held.notes["held"])
    return held if set(paths) <= set(known) else None


def _list_spoilt(
    evidence: Evidence,
    held: Trace | None,
    judged: Sequence[Judged],
    chain: Chain,
    paths: Collection[str],
) -> set[int]:
    """Steps in which something else is wrong that may come of such state.

    It is what becomes another value where one device is given the cluster's. Of that
    comes what the cluster has as well, and anything else unless a right sum lies
    between, or it is a multiple of what is due: then what was made of it is.
    """
    wrong = [j for j in (*chain.wrong, *chain.apart) if not _is_of(j, paths)]
    if held is None:
        return {link.comparison.step for link in wrong}
    right = _list_right_sums(judged)
    infos = evidence.observed.by_path
    found = set()
    for link in wrong:
        c = link.comparison
        if c.step == INITIAL or held.get(c.key.at(WHOLE)) is None:
            continue
        owner = infos[c.variable].owner if c.variable in infos else c.variable
        if is_as_held(held, link) or not (
            (c.step, owner) in right or _is_multiple(link)
        ):
            found.add(c.step)
    return found


def _is_multiple(link: Judged) -> bool:
    """Whether what was seen is a multiple of what is due; of state, of its change."""
    pair = link.pair
    if pair is None or pair.observed.size == 1:
        return False  # of which any number is a multiple
    return (
        fit_multiple(pair.observed - pair.base, pair.expected - pair.base) is not None
    )


def _list_right_sums(judged: Sequence[Judged]) -> set[tuple[int, str]]:
    """Steps and variables of which every replica is given the sum that is due."""
    sums = [
        item.comparison
        for item in judged
        if item.comparison.phase in SUMMED and item.comparison.relation == "reference"
    ]
    wrong = {(c.step, c.variable) for c in sums if c.wrong}
    return {(c.step, c.variable) for c in sums} - wrong
