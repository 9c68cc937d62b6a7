"""Explains loss and local gradients together: a wrong scale shows in both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from distbench.compare.arrays.ratio import SAME, are_same_factors
from distbench.compare.comparison import Judged
from distbench.compare.nature.averaged_losses import averages_losses
from distbench.diagnose.causes.chosen import explain_cases
from distbench.diagnose.causes.exchange import (
    is_of_all,
    join_factors,
    tell_lost_gradient,
)
from distbench.diagnose.causes.explain import Explained, is_vague, list_replicas
from distbench.diagnose.causes.rank import ALL
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.fit import fit_cases
from distbench.diagnose.hypotheses.loss import are_own_means
from distbench.diagnose.names import name_replicas
from distbench.diagnose.stages.in_turn import (
    leave_out_later,
    leave_out_updated,
    list_later,
)
from distbench.diagnose.stages.links import Chain
from distbench.diagnose.stages.passed_on import list_passed_on
from distbench.diagnose.stages.reporting import make_context, report_causes
from distbench.evidence import Evidence
from distbench.trace import Phase
from distbench.trace.numbers import Array, densify, measure_norm
from distbench.verdict import Finding

_SCALING = ("loss-not-scaled", "loss-scaled-twice", "mean-of-means")
"""Causes that lie in the loss and show in its gradient too."""
_BEFORE = ("nonfinite", "replicas-diverged", "stale-read")
"""Causes that lie before the loss or in it, and show in both whatever the factor is."""


def explain_root(
    evidence: Evidence,
    chain: Chain,
    losses: Sequence[Judged],
    gradients: Sequence[Judged],
    phase: Phase,
) -> Iterator[Finding]:
    """Loss and local gradients together: a wrong scale shows in both."""
    root = phase == "local_gradient" or bool(losses)
    gradients, context, causes = _explain_gradients(
        partial(make_context, evidence, chain, phase, root=root), chain, gradients
    )
    if gradients:
        causes = leave_out_updated(evidence, join_factors(context, causes))
    about_loss = make_context(evidence, chain, "loss", losses, root=True)
    of_loss = leave_out_later(explain_cases(about_loss), chain) if losses else ()
    undone = _explain_undone(evidence, chain, of_loss, losses)
    if undone and not gradients:
        yield from undone
        return
    if not of_loss:
        if not losses and chain.shows("loss"):
            causes = tell_lost_gradient(context, causes)
            causes = tuple(_name_lost(cause, context.replicas) for cause in causes)
            causes = tuple(_place_scale(cause, context) for cause in causes)
        yield from report_causes(context, causes, gradients)
        return
    same = [cause for cause in causes if _is_same_factor(cause, of_loss)]
    scaled = same or [cause for cause in causes if cause.code in _SCALING]
    alike = _list_alike(context, scaled)
    if same or (scaled and all(c.code in alike or is_vague(c) for c in of_loss)):
        # These stand for the loss, which has no finding of its own then.
        apart = [*scaled, *_list_apart(evidence, of_loss, causes)]
        raised = _raise_early(
            [cause for cause in causes if cause in apart],
            losses,
            lambda c: _raise_cause(c) if c is scaled[0] else c,
        )
        yield from report_causes(context, raised, gradients)
        return
    unknown = all(map(is_vague, of_loss))
    if causes and unknown and causes[0].code in ("unexplained", "scale-error"):
        # Of so few numbers nothing can be said but what is said of their gradients. The
        # loss has no factor that only some of them have.
        open_ones = [cause for cause in causes if cause.code == "unexplained"] or causes
        raised = _raise_early(
            causes,
            losses,
            lambda c: replace(c, phase="loss") if c in open_ones else c,
        )
        yield from report_causes(context, raised, gradients)
        return
    if not causes and _would_show(chain, phase, losses):
        of_loss = tuple(_misreport(cause) for cause in of_loss)
    elif any(cause.code == "regularizer-not-scaled" for cause in causes):
        of_loss = ()  # the penalty is in the loss as well
    yield from report_causes(about_loss, of_loss, losses)
    yield from report_causes(context, _list_apart(evidence, of_loss, causes), gradients)


def _explain_gradients(
    make: Callable[[Sequence[Judged]], Context],
    chain: Chain,
    gradients: Sequence[Judged],
) -> tuple[Sequence[Judged], Context, tuple[Explained, ...]]:
    """What explains wrong gradients, without those that an earlier update leads.

    Of a variable that a step updates again the first gradient has a cause by itself.
    """
    context = make(gradients)
    causes = explain_cases(context) if gradients else ()
    led = list_later(causes, chain)
    if led:
        gradients = [g for g in gradients if g.pair and g.pair.key not in led]
        context = make(gradients)
        causes = leave_out_later(explain_cases(context), chain) if gradients else ()
    return gradients, context, causes


def _explain_undone(
    evidence: Evidence,
    chain: Chain,
    of_loss: Sequence[Explained],
    losses: Sequence[Judged],
) -> list[Finding]:
    """What is wrong with a loss and its gradients, where the update's rule undoes it.

    Empty unless it is a factor that the loss may have as well.
    """
    passed = list_passed_on(evidence, chain, losses) if of_loss else ()
    if not passed:
        return []
    context = make_context(evidence, chain, "local_gradient", passed, root=True)
    scaled = [cause for cause in explain_cases(context) if cause.code in _SCALING]
    if not scaled or any(
        cause.code != scaled[0].code and not is_vague(cause) for cause in of_loss
    ):
        return []
    raised = _raise_early(scaled, losses, _raise_cause)
    return list(report_causes(context, raised, passed))


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


def _list_alike(context: Context, scaled: Sequence[Explained]) -> set[str]:
    """Codes of losses that stand for the wrong scale that their gradients have.

    How undeclared losses combine is a guess; the gradients say what they weigh. Of the
    replicas' own means losses are said to have the mean, and gradients have the sum.
    """
    reduction = context.evidence.subject.loss_reduction
    alike = {"unexplained", *(cause.code for cause in scaled[:1])}
    if scaled and reduction is None:
        alike |= set(_SCALING)
    cases = tuple(case for cause in scaled for case in cause.cases)
    if scaled and reduction == "mean" and are_own_means(context, cases):
        alike.add("mean-of-means")
    return alike


def _list_apart(
    evidence: Evidence, of_loss: Sequence[Explained], causes: Sequence[Explained]
) -> Sequence[Explained]:
    """What is wrong with gradients that does not follow from the losses.

    Where replicas differentiate features of each other, a gradient is made of the
    losses of all: what is wrong with these leaves no factor of its own on it.
    """
    if not is_of_all(evidence) or any(map(is_vague, of_loss)):
        return causes
    return [cause for cause in causes if not is_vague(cause)]


def _is_same_factor(cause: Explained, of_loss: Sequence[Explained]) -> bool:
    """Whether loss and gradients have the same odd factor, which is one mistake.

    So is Inf or NaN in both, what both are made of, and one cause with one ratio. A
    loss that is wrong in one step has a factor as well, though it proves nothing. Nor
    does a cause that comes near to it: one number is near what many causes foretell.
    """
    if cause.phase == "loss":
        return True
    if cause.code in _BEFORE:
        return all(other.code == cause.code for other in of_loss)
    if cause.ratio is not None and all(
        (other.code, other.ratio) == (cause.code, cause.ratio) for other in of_loss
    ):
        return True
    if cause.code != "scale-error" or cause.ratio is None:
        return False
    ratios = [
        _find_ratio(other)
        for other in of_loss
        if other.code in ("scale-error", "unexplained") or other.confidence < ALL
    ]
    return len(ratios) == len(of_loss) and all(
        ratio is not None and are_same_factors(ratio, cause.ratio) for ratio in ratios
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


def _place_scale(cause: Explained, context: Context) -> Explained:
    """The scale of gradients whose losses are as they should be.

    It lies in the loss if a step differentiates that, or what it makes of it, and it is
    the mean of the own examples: then it is N times its share, of which only the mean
    is one device's. Whatever else gave it to the gradients has not been in the loss.
    """
    if cause.code not in _SCALING:
        return cause
    evidence, ratio = context.evidence, _find_ratio(cause)
    if evidence.subject.differentiated and ratio:
        first = min(case.key.step for case in cause.cases)
        is_mean = averages_losses(evidence, first)
        if is_mean and are_same_factors(ratio, context.replicas):
            return _raise_cause(cause)
    words = (
        "the losses that are told are right, but the gradients are such as where "
        f"{cause.detail}"
    )
    if _are_of_one_length(context, cause):
        words += ", or as of gradients that are divided by their own norm"
    return replace(cause, detail=words)


def _are_of_one_length(context: Context, cause: Explained) -> bool:
    """Whether gradients are as long on all replicas, together or each by itself.

    Those that are divided by their own norm are, whatever examples they are of.
    """
    found: dict[tuple[int, int], dict[str, list[float]]] = {}
    for case in cause.cases:
        key = case.key
        seen = context.evidence.observed.get_replicas(key)
        norms = [measure_norm(densify(value)) for value in seen]
        found.setdefault((key.step, key.call), {})[key.variable] = norms

    def are_alike(lengths: Array) -> bool:
        return bool(np.all(np.ptp(lengths, axis=1) <= SAME * lengths.max(axis=1)))

    tables = [np.array([*norms.values()]) for norms in found.values()]
    return all(
        are_alike(table) or are_alike(np.hypot.reduce(table, axis=0)[None])
        for table in tables
    )


def _would_show(chain: Chain, phase: Phase, losses: Sequence[Judged]) -> bool:
    """Whether gradients as wrong as the loss would lie beyond their bounds.

    What a sum makes of the gradients that were seen holds of wrong ones as well.
    """
    wrong = [j.comparison for j in losses if j.comparison.change > 0]
    relative = min((c.error / c.change for c in wrong), default=0.0)
    return not wrong or any(
        relative * link.comparison.change > link.comparison.resolution
        for link in (*chain.held, *chain.forgiven)
        if link.comparison.phase == phase and link.comparison.relation != "follows"
    )


def _misreport(cause: Explained) -> Explained:
    # Of state that differs by replica a gradient may show nothing, as where a loss is
    # linear in what is made of it.
    if cause.code in ("nonfinite", "lower-precision", "replicas-diverged"):
        return cause
    what = "" if cause.code == "unexplained" else f": {cause.detail}"
    return replace(
        cause,
        code="loss-misreported",
        detail=f"the gradients are right, the returned loss is not{what}",
        confidence=1.0,
    )
