"""Turns a cause and the values that it explains into a finding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from distbench.codes import CODES
from distbench.compare.arrays.pair import TOLD, Pair
from distbench.compare.comparison import Comparison, Judged
from distbench.diagnose.causes.rank import ALL
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.fit import fit_cases
from distbench.diagnose.hypotheses.alone import list_wrong
from distbench.diagnose.names import name_replicas
from distbench.evidence import Evidence
from distbench.trace import GRADIENTS, INITIAL, WHOLE, Phase
from distbench.verdict import Finding

GENERIC = ("unexplained", "replicas-diverged")
"""Codes that say no more than that something is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Explained:
    """A cause and the wrong values that it stands for.

    Attributes:
        code: Finding code.
        detail: What happened.
        confidence: Share of the residual's norm that the cause explains.
        cases: Values that it explains.
        phase: Phase to report.
        replicas: Replicas that the cause names; None for those that are wrong.
        ratio: A ratio that says more than the fitted one.
        advice: What to do, where the code's own advice does not fit.
        foretells: Whether it says what the values would be.
    """

    code: str
    detail: str
    confidence: float
    cases: tuple[Pair, ...]
    phase: Phase
    replicas: tuple[int, ...] | None = None
    ratio: float | None = None
    advice: str = ""
    foretells: bool = True


def explain_all(
    context: Context, code: str, detail: str, confidence: float = 1.0
) -> Explained:
    """One cause for all wrong values of a phase."""
    return Explained(
        code=code,
        detail=detail,
        confidence=confidence,
        cases=context.cases,
        phase=context.phase,
    )


def is_vague(told: Explained | Finding) -> bool:
    """Whether no cause is named, or a factor that leaves a part of the error."""
    odd = told.code == "scale-error" and told.confidence < ALL
    return odd or told.code == "unexplained"


def tells_all(finding: Finding) -> bool:
    """Whether its cause leaves nothing of what is wrong, or foretells no number."""
    is_numberless = finding.confidence == 0 and finding.code not in GENERIC
    return finding.confidence >= ALL or is_numberless


def make_finding(
    context: Context, explained: Explained, comparisons: Sequence[Comparison]
) -> Finding:
    """Say where a cause shows first, by how much, and what to do.

    Args:
        context: All wrong values of the phase.
        explained: The cause.
        comparisons: The comparisons of the explained values.
    """
    cases = explained.cases
    infos = context.infos
    places = _order_variables(context.evidence, explained.phase)
    step = min(case.key.step for case in cases)
    names = sorted(
        {case.key.variable for case in cases},
        key=lambda name: (
            min(case.key.step for case in cases if case.key.variable == name),
            places.get(name, (-1, -1)),
        ),
    )
    if explained.phase in (*GRADIENTS, "variable"):
        # A cause that shows in the slots first and is about the whole update.
        names = list(dict.fromkeys(infos[n].owner if n in infos else n for n in names))
    if explained.phase == "loss" and cases[0].key.phase.endswith("gradient"):
        names.insert(0, "")
    owner = infos[names[0]].of if names[0] in infos else ""
    # Later steps have gone further astray, and it is the first one that is named.
    begun = [case for case in cases if case.key.step == step]
    shown = _list_shown(context, explained, names, step)
    if shown:
        comparisons = [link.comparison for link in shown]
        begun = [link.pair for link in shown if link.pair is not None]

    # What is named has to have the numbers: another variable may be off otherwise.
    def is_named(path: str) -> bool:
        return names[0] in (path, infos[path].owner if path in infos else path)

    begun = [c for c in begun if is_named(c.key.variable)] or begun
    comparisons = [c for c in comparisons if is_named(c.variable)] or comparisons
    ratio = explained.ratio
    if ratio is None:
        fit = fit_cases(begun)
        ratio = None if fit is None else fit.ratio
    replicas = explained.replicas
    if replicas is None:
        replicas = list_wrong(context, cases)
        replicas = replicas or list_replicas(cases, context.replicas)
    begin = min(c.step for c in comparisons)
    worst = max((c for c in comparisons if c.step == begin), key=lambda c: c.error)
    return Finding(
        code=explained.code,
        phase=explained.phase,
        step=step,
        variable=names[0],
        replicas=replicas,
        ratio=ratio,
        error=worst.error,
        bound=worst.bound,
        explanation=_write_sentence(
            explained, step, names, owner, replicas, ratio, worst, context.replicas == 1
        ),
        confidence=float(explained.confidence) if explained.foretells else 0.0,
        warning=CODES[explained.code].warning,
        variables=tuple(names),
    )


def _list_shown(
    context: Context, explained: Explained, names: Sequence[str], step: int
) -> list[Judged]:
    """What is wrong with what a finding names, where other values told its cause.

    As a slot may tell of an update, and a gradient of a loss: the numbers of a finding
    are of what it is about. Empty where that is what told the cause, or where nothing
    is wrong with it in the first step.
    """
    if any(case.key.phase == explained.phase for case in explained.cases):
        return []
    return [
        link
        for link in context.wrong
        if (link.comparison.phase, link.comparison.step) == (explained.phase, step)
        and link.comparison.variable in names
    ]


def _order_variables(evidence: Evidence, phase: Phase) -> Mapping[str, tuple[int, int]]:
    """Which variables come first: what a step assigns to first leads what comes later.

    Gradients, and what no step assigns to by itself, are in the order of the program's
    list.
    """
    written = cast(Sequence[str], evidence.observed.notes.get("written", ()))
    first = {path: place for place, path in enumerate(written)}
    return {
        variable.path: (
            len(written)
            if phase in GRADIENTS
            else first.get(variable.path, len(written)),
            place,
        )
        for place, variable in enumerate(evidence.reference.variables)
    }


def list_replicas(cases: Sequence[Pair], replicas: int) -> tuple[int, ...]:
    """Replicas of the cases; a sum over the replicas concerns all of them."""
    found = {case.key.replica for case in cases}
    if WHOLE in found:
        return tuple(range(replicas))
    return tuple(sorted(found))


def _write_sentence(
    explained: Explained,
    step: int,
    names: Sequence[str],
    owner: str,
    replicas: Sequence[int],
    ratio: float | None,
    worst: Comparison,
    alone: bool,
) -> str:
    when = "Before the first step" if step == INITIAL else f"Step {step}"
    more = len(names) - 1
    is_told = worst.relation in TOLD and explained.phase == "loss"
    what = worst.relation if is_told else explained.phase
    where = f"{what} of '{names[0]}'" if names[0] else what
    if owner and owner not in names[0]:
        # All slots of variables without a name are called alike.
        where += f" for '{owner}'"
    if more:
        where += f" (and {more} {'more' if names[0] else 'gradients'})"
    who = name_replicas(replicas)
    numbers = [] if ratio is None else [f"ratio {ratio:.6g}"]
    numbers.append(f"error {worst.error:.3g}, allowed {worst.bound:.3g}")
    return (
        f"{when}, {where}, {who}: {explained.detail} "
        f"({explained.code}; {', '.join(numbers)}, against {worst.against}). "
        f"{explained.advice or CODES[explained.code].advise(alone=alone)}"
    )
