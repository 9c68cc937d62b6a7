"""State that is wrong with no wrong gradient before it: at the start, or apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from distbench.compare.arrays.bounds import find_roundoff
from distbench.compare.arrays.copies import are_recorded_alike
from distbench.compare.comparison import Judged
from distbench.compare.state.leading import is_number
from distbench.diagnose.stages.links import Chain
from distbench.diagnose.stages.reporting import report_all
from distbench.diagnose.stages.restored import explain_restored
from distbench.evidence import Evidence
from distbench.trace import (
    INITIAL,
    PHASES,
    Phase,
    Value,
    VariableInfo,
    get_numbers,
)
from distbench.trace.numbers import densify, measure_size
from distbench.verdict import Finding


def explain_start(evidence: Evidence, chain: Chain) -> Iterator[Finding]:
    """State that differs before the first step."""
    start = [j for j in chain.broken if j.comparison.step == INITIAL]
    known = {j.comparison.key for j in start}
    # A replica that starts as one device does is not wrong because another one is.
    known |= {j.comparison.key for j in chain.held}
    start += [
        j
        for j in chain.apart
        if j.comparison.step == INITIAL and j.comparison.key not in known
    ]
    if evidence.subject.restored:
        yield from explain_restored(evidence, chain, start)
        return
    infos = evidence.reference.by_path
    groups: dict[tuple[Phase, str, str], list[Judged]] = {}
    for link in start:
        code, words = _name_start(link, infos)
        groups.setdefault((link.comparison.phase, code, words), []).append(link)
    for (phase, code, words), links in sorted(groups.items(), key=_place_group):
        yield report_all(evidence, chain, phase, links, code, words)


def _name_start(link: Judged, infos: Mapping[str, VariableInfo]) -> tuple[str, str]:
    c = link.comparison
    if c.phase != "slot":
        return "initial-value-differs", "it does not start as on one device"
    info = infos.get(c.variable)
    if info is not None and is_number(info):
        return "hyperparameter-differs", "the number is another than on one device"
    return "slot-initial", "the slot does not start as on one device"


def _place_group(group: tuple[tuple[Phase, str, str], list[Judged]]) -> tuple[int, str]:
    (phase, code, _), _ = group
    return PHASES.index(phase), code


def leave_out_led_apart(
    evidence: Evidence, chain: Chain, findings: Sequence[Finding]
) -> Chain:
    """A chain without replicas that may be apart by what is found elsewhere.

    Where nothing is, none are. Else those stay of which all is right but that the sums
    are apart: what is wrong with another variable, or before a sum, all replicas have
    alike. In the free tier a loss is made of all that went wrong before.
    """
    faults = [finding for finding in findings if not finding.warning]
    if not faults:
        return chain
    infos = evidence.observed.by_path

    def find_owner(path: str) -> str:
        return infos[path].owner if path in infos else path

    wrong = (*chain.broken, *chain.forgiven, *chain.undecided, *chain.following)
    paths = {path for finding in faults for path in finding.variables}
    paths |= {link.comparison.variable for link in wrong}
    owners = set(map(find_owner, paths))
    apart = [
        link
        for link in chain.apart
        if evidence.tier != "free"
        and find_owner(link.comparison.variable) not in owners
        and _has_sums_apart(evidence, link)
    ]
    return replace(chain, apart=tuple(apart))


def explain_apart(evidence: Evidence, chain: Chain) -> Iterator[Finding]:
    """Replicas whose state differs though every link of each of them holds."""
    apart = [j for j in chain.apart if j.comparison.step != INITIAL]
    infos = evidence.reference.by_path
    statistics, slots, rest = [], [], []
    for link in apart:
        info = infos.get(link.comparison.variable)
        if link.comparison.phase == "slot":
            slots.append(link)
        elif info is not None and info.role == "variable" and not info.trainable:
            statistics.append(link)
        else:
            rest.append(link)
    words = "replicas that are meant to hold the same value differ"
    trained = [*slots, *rest]
    if trained and all(_has_sums_apart(evidence, link) for link in trained):
        code = "replicas-diverged"
        words = (
            "the replicas' sums of the gradients differ by a rounding, as where each "
            "adds up in an order of its own, so their state goes apart"
        )
        if not all(_are_near(evidence, link) for link in trained):
            words = (
                "what the replicas make of the sum of the gradients differs, as where "
                "each draws random numbers of its own, so their state goes apart"
            )
        yield report_all(evidence, chain, "reduced_gradient", trained, code, words)
        return
    for code, links in (
        ("slot-not-synchronized", slots),
        ("replicas-diverged", rest),
        ("statistics-not-synchronized", statistics),
    ):
        if links:
            phase = links[0].comparison.phase
            yield report_all(evidence, chain, phase, links, code, words)
            return


def _has_sums_apart(evidence: Evidence, link: Judged) -> bool:
    """Whether the replicas updated what is apart with sums that were so before."""
    return any(not are_recorded_alike(*pair) for pair in _list_sums(evidence, link))


def _are_near(evidence: Evidence, link: Judged) -> bool:
    """Whether these sums have half of their digits in common, which rounding leaves."""
    for left, right in _list_sums(evidence, link):
        dtype = str(get_numbers(left).dtype)
        first, other = densify(left), densify(right)
        if measure_size(first - other) > math.sqrt(find_roundoff(dtype)) * measure_size(
            first
        ):
            return False
    return True


def _list_sums(evidence: Evidence, link: Judged) -> Iterator[tuple[Value, Value]]:
    """The sum that a replica had for a variable that is apart, with the first one's."""
    c, observed = link.comparison, evidence.observed
    info = observed.by_path.get(c.variable)
    owner = c.variable if info is None else info.owner
    found = observed.select(step=c.step, phase="reduced_gradient", variable=owner)
    first: dict[int, Value] = {}
    for key, value in found:
        yield first.setdefault(key.call, value), value
