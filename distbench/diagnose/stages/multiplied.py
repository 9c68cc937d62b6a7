"""Gradients that a program multiplies by a number of its own, which is wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from distbench.compare.arrays.pair import OF_COPIES
from distbench.compare.arrays.ratio import SAME, are_same_factors
from distbench.compare.comparison import Judged
from distbench.compare.state.leading import has_gradient, is_unmoved
from distbench.diagnose.clues.fit import fit_cases
from distbench.diagnose.stages.links import Chain
from distbench.evidence import Evidence
from distbench.trace import SUMMED, Phase


def move_multiplied(
    evidence: Evidence, chain: Chain, by_phase: Mapping[Phase, list[Judged]]
) -> dict[Phase, list[Judged]]:
    """Wrong links by phase, with a number in the place of the gradients that it leads.

    A rate that follows a metric is changed before the gradient is multiplied by it: in
    each step the gradient is as many times what it should be as the number is. Nor does
    the number follow from the gradient, for one device comes to its own from that.
    """
    found = dict(by_phase)
    if evidence.tier == "free":
        return found
    for path, links in _list_numbers(evidence, chain).items():
        ratios = {step: _get_ratio(link) for step, link in links.items()}
        for phase in SUMMED:
            if _are_multiplied(found[phase], ratios):
                found[phase] = []
                told = {j.comparison.key for j in found["variable"]}
                found["variable"] = found["variable"] + [
                    link
                    for link in chain.following
                    if link.comparison.variable == path
                    and link.comparison.phase == "variable"
                    and link.comparison.key not in told
                ]
    return found


def _list_numbers(evidence: Evidence, chain: Chain) -> dict[str, dict[int, Judged]]:
    """Wrong numbers of the model by step, of those that no gradient leads."""
    infos = evidence.observed.by_path
    found: dict[str, dict[int, Judged]] = {}
    for link in (*chain.broken, *chain.following):
        c = link.comparison
        # A metric shows a number under its own name, which is no variable's.
        if c.phase != "variable" or c.relation in OF_COPIES or c.ratio is None:
            continue
        if math.prod(infos[c.variable].shape) != 1:
            continue
        is_own = infos[c.variable].trainable or has_gradient(evidence, c.variable)
        if is_own or not is_unmoved(evidence, c.key):
            continue
        found.setdefault(c.variable, {}).setdefault(c.step, link)
    return found


def _are_multiplied(links: Sequence[Judged], ratios: Mapping[int, float]) -> bool:
    steps = {link.comparison.step for link in links}
    return bool(steps) and all(
        step in ratios and are_same_factors(ratio, ratios[step])
        for step, ratio in _fit_steps(links, steps)
    )


def _fit_steps(links: Sequence[Judged], steps: set[int]) -> Iterator[tuple[int, float]]:
    """One factor for all gradients of each step; NaN where there is none.

    Of a large model the first wrong numbers of each value are held alone, and of each
    later one its own factor is known.
    """
    for step in steps:
        begun = [link for link in links if link.comparison.step == step]
        yield from ((step, _get_ratio(link)) for link in begun if link.pair is None)
        cases = [link.pair for link in begun if link.pair is not None]
        if not cases:
            continue
        fit = fit_cases(cases)
        is_one = fit is not None and fit.residual_share <= SAME
        yield step, fit.ratio if fit is not None and is_one else math.nan


def _get_ratio(link: Judged) -> float:
    return math.nan if link.comparison.ratio is None else link.comparison.ratio
