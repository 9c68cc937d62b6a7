"""Explains the broken links phase by phase, in causal order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from distbench.compare.comparison import Judged
from distbench.compare.copies import are_recorded_alike
from distbench.compare.led import find_unled
from distbench.compare.pair import TOLD
from distbench.diagnose.causes import explain_cases
from distbench.diagnose.context import Context, is_number
from distbench.diagnose.exchange import exchanges, tell_lost_gradient
from distbench.diagnose.explain import (
    Explained,
    is_vague,
    list_replicas,
    make_finding,
)
from distbench.diagnose.fit import fit_cases
from distbench.diagnose.in_turn import leave_out_later
from distbench.diagnose.led import leave_out_led
from distbench.diagnose.links import Chain
from distbench.diagnose.names import name_replicas
from distbench.diagnose.rank import ALL
from distbench.diagnose.totals import explain_results, explain_totals
from distbench.evidence import Evidence
from distbench.trace import GRADIENTS, INITIAL, PHASES, Phase, Value, VariableInfo
from distbench.verdict import Finding

SCALING = ("loss-not-scaled", "loss-scaled-twice", "mean-of-means")
"""Causes that lie in the loss and show in its gradient too."""
_BEFORE_STATE = ("loss", *GRADIENTS)
_SAME = 1e-3
"""Two fitted factors that are no farther apart are taken for one number."""


def explain_chain(evidence: Evidence, chain: Chain) -> tuple[Finding, ...]:
    """A finding for each cause, in causal order."""
    findings = list(_explain_start(evidence, chain))
    later = [j for j in chain.broken if j.comparison.step != INITIAL]
    by_phase: dict[Phase, list[Judged]] = {phase: [] for phase in PHASES}
    for link in later:
        if link.comparison.relation not in TOLD:
            by_phase[link.comparison.phase].append(link)
    root: Phase = "local_gradient"
    if not _was_seen(chain, "local_gradient"):
        root = "reduced_gradient"
    findings += _explain_root(evidence, chain, by_phase["loss"], by_phase[root], root)
    for phase in PHASES[1:]:
        if phase != root and by_phase[phase]:
            context = make_context(evidence, chain, phase, by_phase[phase])
            findings += _report(context, explain_cases(context), by_phase[phase])
    findings = leave_out_led(evidence, later, findings)
    findings = _tell_unled(evidence, chain, findings)
    # An update that is applied again, or that should have been skipped, is counted.
    told = {f.step for f in findings if f.code in ("update-repeated", "nonfinite")}
    findings = [f for f in findings if f.phase != "iterations" or f.step not in told]
    if not any(not finding.warning for finding in findings):
        findings += _explain_apart(evidence, chain)
    for relation, explain in (("total", explain_totals), ("result", explain_results)):
        wrong = [j for j in later if j.comparison.relation == relation]
        if wrong:
            context = make_context(evidence, chain, "variable", wrong)
            findings += _report(context, explain(context), wrong)
    findings.sort(key=lambda f: (f.step, _place(f), f.warning, f.code == "unexplained"))
    return tuple(findings)


def make_context(
    evidence: Evidence,
    chain: Chain,
    phase: Phase,
    broken: Sequence[Judged],
    *,
    root: bool = False,
) -> Context:
    """What the hypotheses of a phase may look at."""
    return Context(
        evidence=evidence,
        phase=phase,
        cases=tuple(j.pair for j in broken if j.pair is not None),
        right=frozenset(
            j.comparison.key
            for j in chain.held
            if j.comparison.phase == phase and j.comparison.relation not in TOLD
        ),
        root=root,
        led=any(j.comparison.relation == "led" for j in chain.broken),
    )


def _report(
    context: Context, causes: Sequence[Explained], links: Sequence[Judged]
) -> Iterator[Finding]:
    by_case: dict[int, Judged] = {id(link.pair): link for link in links}
    for explained in causes:
        comparisons = [
            by_case[id(case)].comparison
            for case in explained.cases
            if id(case) in by_case
        ]
        yield make_finding(context, explained, comparisons)


def _tell_unled(
    evidence: Evidence, chain: Chain, findings: list[Finding]
) -> list[Finding]:
    """State that no example leads, in place of what nothing explains in its step.

    It does not follow from loss or gradients, so it is wrong by itself; and these may
    be made of it, where it changes at the start of the step.
    """
    vague = [f for f in findings if f.phase in _BEFORE_STATE and is_vague(f)]
    if not vague or evidence.tier == "free":
        return findings
    unled = find_unled(evidence)
    told = {j.comparison.key for j in chain.broken}
    wrong = [
        j
        for j in (*chain.broken, *chain.following)
        if j.comparison.variable in unled and j.pair is not None
    ]
    steps = {j.comparison.step for j in wrong}
    kept = [f for f in findings if f not in vague or f.step not in steps]
    if len(kept) == len(findings):
        return findings
    links = [j for j in wrong if j.comparison.key not in told]
    if links:
        context = make_context(evidence, chain, "variable", links)
        kept += _report(context, explain_cases(context), links)
    return kept


def _explain_root(
    evidence: Evidence,
    chain: Chain,
    losses: Sequence[Judged],
    gradients: Sequence[Judged],
    phase: Phase,
) -> Iterator[Finding]:
    """Loss and local gradients together: a wrong scale shows in both."""
    causes: tuple[Explained, ...] = ()
    root = phase == "local_gradient" or bool(losses)
    context = make_context(evidence, chain, phase, gradients, root=root)
    if gradients:
        causes = leave_out_later(explain_cases(context), chain)
    about_loss = make_context(evidence, chain, "loss", losses, root=True)
    of_loss: tuple[Explained, ...] = ()
    if losses:
        of_loss = leave_out_later(explain_cases(about_loss), chain)
    if not of_loss:
        if not losses and _was_seen(chain, "loss"):
            causes = tell_lost_gradient(context, causes)
            causes = tuple(_name_lost(cause, context.replicas) for cause in causes)
        yield from _report(context, causes, gradients)
        return
    same = [cause for cause in causes if _is_same_factor(cause, of_loss)]
    scaled = same or [cause for cause in causes if cause.code in SCALING]
    # How undeclared losses combine is a guess; the gradients say what they weigh.
    alike = {"unexplained", *(c.code for c in scaled[:1])}
    if scaled and evidence.loss_reduction is None:
        alike |= set(SCALING)
    if same or (scaled and all(c.code in alike or is_vague(c) for c in of_loss)):
        raised = _raise_early(
            causes, losses, lambda c: _raise_cause(c) if c is scaled[0] else c
        )
        yield from _report(context, raised, gradients)
        return
    unknown = all(map(is_vague, of_loss))
    if causes and unknown and causes[0].code in ("unexplained", "scale-error"):
        # Of so few numbers nothing can be said but what is said of their gradients.
        raised = _raise_early(causes, losses, lambda c: replace(c, phase="loss"))
        yield from _report(context, raised, gradients)
        return
    if not causes and _would_show(chain, phase, losses):
        of_loss = tuple(_misreport(cause) for cause in of_loss)
    elif any(cause.code == "regularizer-not-scaled" for cause in causes):
        of_loss = ()  # the penalty is in the loss as well
    yield from _report(about_loss, of_loss, losses)
    yield from _report(context, _list_apart(evidence, of_loss, causes), gradients)


def _raise_early(
    causes: Sequence[Explained],
    losses: Sequence[Judged],
    change: Callable[[Explained], Explained],
) -> tuple[Explained, ...]:
    """Have causes of gradients lie in the loss, if that is wrong as early."""
    first = min(link.comparison.step for link in losses)
    return tuple(
        change(cause) if first <= min(c.key.step for c in cause.cases) else cause
        for cause in causes
    )


def _list_apart(
    evidence: Evidence, of_loss: Sequence[Explained], causes: Sequence[Explained]
) -> Sequence[Explained]:
    """What is wrong with gradients that does not follow from the losses.

    Where replicas differentiate features of each other, a gradient is made of the
    losses of all: what is wrong with these leaves no factor of its own on it.
    """
    if not exchanges(evidence, "features") or any(map(is_vague, of_loss)):
        return causes
    return [cause for cause in causes if not is_vague(cause)]


def _is_same_factor(cause: Explained, of_loss: Sequence[Explained]) -> bool:
    """Whether loss and gradients have the same odd factor, which is one mistake.

    A loss that is wrong in one step has a factor as well, though it proves nothing. Nor
    does a cause that comes near to it: one number is near what many causes foretell.
    """
    if cause.phase == "loss":
        return True
    if cause.code != "scale-error" or cause.ratio is None:
        return False
    ratios = [
        _find_ratio(other)
        for other in of_loss
        if other.code in ("scale-error", "unexplained") or other.confidence < ALL
    ]
    return len(ratios) == len(of_loss) and all(
        ratio is not None and bool(np.isclose(ratio, cause.ratio, rtol=_SAME, atol=0.0))
        for ratio in ratios
    )


def _find_ratio(cause: Explained) -> float | None:
    if cause.code == "scale-error":
        return cause.ratio
    fit = fit_cases(cause.cases)
    return None if fit is None else fit.ratio


def _raise_cause(cause: Explained) -> Explained:
    """A cause of wrong gradients that lies in the loss already."""
    raised = replace(cause, phase="loss")
    if cause.code != "scale-error" or cause.ratio != 0:
        return raised
    return replace(
        raised,
        code="examples-missed",
        detail="it is 0, and so are the gradients: no example has any part in them",
    )


def _name_lost(cause: Explained, replicas: int) -> Explained:
    """A cause of wrong gradients by which some replicas have none, and a loss."""
    lost = cause.replicas or list_replicas(cause.cases, replicas)
    if cause.code != "scale-error" or cause.ratio != 0 or len(lost) == replicas:
        return cause
    return replace(
        cause,
        code="replica-dropped",
        detail=f"{name_replicas(lost)}: the losses are right and the gradients 0",
        replicas=lost,
    )


def _would_show(chain: Chain, phase: Phase, losses: Sequence[Judged]) -> bool:
    """Whether gradients as wrong as the loss would lie beyond their bounds."""
    wrong = [j.comparison for j in losses if j.comparison.change > 0]
    relative = min((c.error / c.change for c in wrong), default=0.0)
    return not wrong or any(
        relative * link.comparison.change > link.comparison.resolution
        for link in (*chain.held, *chain.forgiven)
        if link.comparison.phase == phase
    )


def _place(finding: Finding) -> int:
    return [str(phase) for phase in PHASES].index(finding.phase)


def _misreport(cause: Explained) -> Explained:
    if cause.code in ("nonfinite", "lower-precision"):
        return cause
    what = "" if cause.code == "unexplained" else f": {cause.detail}"
    return replace(
        cause,
        code="loss-misreported",
        detail=f"the gradients are right, the returned loss is not{what}",
        confidence=1.0,
    )


def _was_seen(chain: Chain, phase: Phase) -> bool:
    return any(link.comparison.phase == phase for link in chain.settled)


def _explain_start(evidence: Evidence, chain: Chain) -> Iterator[Finding]:
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
    infos = {v.path: v for v in evidence.reference.variables}
    groups: dict[tuple[Phase, str, str], list[Judged]] = {}
    for link in start:
        code, words = _name_start(link, infos)
        if evidence.restored:
            code, words = "state-not-restored", "it is not what was saved"
        groups.setdefault((link.comparison.phase, code, words), []).append(link)
    for (phase, code, words), links in sorted(groups.items(), key=_place_group):
        context = make_context(evidence, chain, phase, links)
        explained = Explained(
            code=code,
            detail=words,
            confidence=1.0,
            cases=context.cases,
            phase=context.phase,
        )
        yield from _report(context, (explained,), links)


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


def _explain_apart(evidence: Evidence, chain: Chain) -> Iterator[Finding]:
    """Replicas whose state differs though every link of each of them holds."""
    apart = [j for j in chain.apart if j.comparison.step != INITIAL]
    infos = {v.path: v for v in evidence.reference.variables}
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
        context = make_context(evidence, chain, "reduced_gradient", trained)
        explained = Explained(
            code="replicas-diverged",
            detail="the replicas' sums of the gradients differ by a rounding, as where "
            "each adds up in an order of its own, so their state goes apart",
            confidence=1.0,
            cases=context.cases,
            phase="reduced_gradient",
        )
        yield from _report(context, (explained,), trained)
        return
    for code, links in (
        ("slot-not-synchronized", slots),
        ("replicas-diverged", rest),
        ("statistics-not-synchronized", statistics),
    ):
        if links:
            phase = links[0].comparison.phase
            context = make_context(evidence, chain, phase, links)
            explained = Explained(
                code=code,
                detail=words,
                confidence=1.0,
                cases=context.cases,
                phase=phase,
            )
            yield from _report(context, (explained,), links)
            return


def _has_sums_apart(evidence: Evidence, link: Judged) -> bool:
    """Whether the replicas updated what is apart with sums that were so before."""
    c, observed = link.comparison, evidence.observed
    info = {v.path: v for v in observed.variables}.get(c.variable)
    owner = c.variable if info is None else info.owner
    found = observed.select(step=c.step, phase="reduced_gradient", variable=owner)
    first: dict[int, Value] = {}
    return any(
        not are_recorded_alike(first.setdefault(key.call, value), value)
        for key, value in found
    )
