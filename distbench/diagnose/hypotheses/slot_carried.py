"""Slots that weigh otherwise what another slot has carried over to a gradient."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from distbench.compare.arrays.ratio import SAME
from distbench.diagnose.clues.cases import find_base
from distbench.diagnose.clues.context import Context, Numbered
from distbench.diagnose.clues.fit import (
    Row,
    drop_empty,
    fit_weights,
    leaves_nothing,
    predict_rows,
)
from distbench.diagnose.clues.hypothesis import Hypothesis
from distbench.diagnose.hypotheses.slot_facts import group_by_kind
from distbench.trace.numbers import Array, densify


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Fed:
    """What slots follow from: x = g + ρ c, with c what another slot carried over.

    Attributes:
        gradients: g, by number of the case.
        carried: c.
        due: ρ on one device.
        seen: ρ as it was observed.
    """

    gradients: Mapping[int, Array]
    carried: Mapping[int, Array]
    due: float
    seen: float

    def make(self, number: int, weight: float) -> Array:
        """What a slot takes with a weight of what was carried over."""
        return self.gradients[number] + weight * self.carried[number]


def explain_by_carried(context: Context) -> Iterator[Hypothesis]:
    """Slots take what another one has accumulated with another weight than is due.

    As of an accumulator of gradients that is divided by N again in each step. A slot
    that is linear in it shows both weights, with that of the gradient as the measure;
    one of squares has to follow from the same.
    """
    if context.phase != "slot" or context.spares_replicas:
        return
    kinds = group_by_kind(context)
    slots = [v for v in context.infos.values() if v.of]
    wrong = {link.comparison.variable for link in context.wrong}
    wrong_kinds = {v.kind for v in slots if v.path in wrong}
    for kind in sorted({v.kind for v in slots} - wrong_kinds):
        for cases in kinds:
            fed = _fit_linear(context, cases, kind)
            if fed is not None:
                yield _name(context, kinds, kind, fed)


def _name(
    context: Context, kinds: Sequence[Sequence[Numbered]], kind: str, fed: _Fed
) -> Hypothesis:
    predicted: dict[int, Array] = {}
    for cases in kinds:
        predicted |= _predict(context, cases, kind, fed)
    ratio = fed.seen / fed.due
    # What rounding leaves of 0 is no number to look for.
    ratio = 0.0 if abs(ratio) <= SAME else ratio
    times = f"{ratio:.6g} times" if ratio else "nothing of"
    return Hypothesis(
        code="scale-error",
        predicted=predicted,
        detail="it takes the gradient as it should, and beside it "
        f"{times} what another slot of its variable had accumulated before the step",
        ratio=ratio,
    )


def _fit_linear(context: Context, cases: Sequence[Numbered], kind: str) -> _Fed | None:
    """Both weights of what a kind of slots carried over; None where none is linear."""
    gradients, carried = _read(context, cases, kind)
    weights = []
    for values in ("expected", "observed"):
        rows = [
            Row(
                number=number,
                target=getattr(case, values),
                features=(find_base(case), gradients[number], carried[number]),
            )
            for number, case in cases
            if number in gradients and number in carried
        ]
        rows = drop_empty(rows, 0)
        found = fit_weights(rows)
        if found is None or not leaves_nothing(rows, found) or found[-2] == 0:
            return None
        weights.append(found)
    due, seen = (float(found[-1] / found[-2]) for found in weights)
    is_same = abs(weights[1][-2] - weights[0][-2]) <= SAME * abs(weights[0][-2])
    if not is_same or abs(due) <= SAME or abs(seen - due) <= SAME * abs(due):
        return None
    return _Fed(gradients=gradients, carried=carried, due=due, seen=seen)


def _predict(
    context: Context, cases: Sequence[Numbered], kind: str, fed: _Fed
) -> dict[int, Array]:
    """What slots that take x, or x², hold with the observed weight."""
    gradients, carried = _read(context, cases, kind)
    fed = replace(fed, gradients=gradients, carried=carried)
    known = [(n, case) for n, case in cases if n in gradients and n in carried]
    for power in (1, 2):
        rows = _list_rows(known, fed, fed.due, power)
        weights = fit_weights(rows)
        if weights is not None and leaves_nothing(rows, weights):
            return predict_rows(_list_rows(known, fed, fed.seen, power), weights)
    return {}


def _list_rows(
    cases: Sequence[Numbered], fed: _Fed, weight: float, power: int
) -> list[Row]:
    rows = [
        Row(
            number=number,
            target=case.expected,
            features=(find_base(case), fed.make(number, weight) ** power),
        )
        for number, case in cases
    ]
    return drop_empty(rows, 0)


def _read(
    context: Context, cases: Sequence[Numbered], kind: str
) -> tuple[dict[int, Array], dict[int, Array]]:
    """The gradients of slots, and what their variables' slots of a kind held before."""
    paths = {v.of: v.path for v in context.infos.values() if v.of and v.kind == kind}
    gradients: dict[int, Array] = {}
    carried: dict[int, Array] = {}
    for number, case in cases:
        info = context.infos[case.key.variable]
        path = paths.get(info.of, case.key.variable)
        gradient = context.find_due_gradient(case, info.of) if info.of else None
        before = context.evidence.get_before(case.key.step, "slot", path)
        if path == case.key.variable or gradient is None or before is None:
            continue
        old = densify(before)
        if old.shape == gradient.shape == case.expected.shape:
            gradients[number], carried[number] = gradient, old
    return gradients, carried
