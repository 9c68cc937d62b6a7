"""Sums from which every replica leaves some elements out, and what it keeps of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from evidence_changes import change_evidence
from gradient_values import add_up, clip_norm
from sum_pairs import make_sum_pair
from training_simulator import Fault, observe
from wrong_steps import each, feed_back

from distbench.diagnose.clues.context import Context
from distbench.diagnose.hypotheses.masks import explain_by_mask
from distbench.diagnose.judge import judge
from distbench.trace import TraceKey, VariableInfo

Array = np.ndarray
ROWS = np.array([0.0, 1.0, 2.0]), np.array([1.0, 3.0])
KEPT_BACK = np.array([[True, False], [False, True], [True, True]])
"""Elements of the first step that the second replica does not send."""


@pytest.mark.parametrize("sends_it_later", [True, False])
def test_what_is_kept_back_of_rows_goes_to_the_same_rows(sends_it_later: bool) -> None:
    """The second step has other rows: of what was kept back, row 1 alone is sent."""
    rng = np.random.default_rng(3)
    first, second = ([rng.normal(size=(len(r), 2)) for _ in "ab"] for r in ROWS)
    sent = [first[0], np.where(KEPT_BACK, 0.0, first[1])]
    later = np.zeros((2, 2))
    if sends_it_later:
        later[0] = np.where(KEPT_BACK[1], first[1][1], 0.0)
    cases = (
        make_sum_pair(0, np.sum(sent, axis=0), first, ROWS[0]),
        make_sum_pair(1, second[0] + second[1] + later, second, ROWS[1]),
    )
    context = Context(evidence=observe(), phase="reduced_gradient", cases=cases)
    told = {h.detail: h.predicted for h in explain_by_mask(context)}
    (fed_back,) = (p for detail, p in told.items() if "next one" in detail)
    assert np.allclose(fed_back[0], cases[0].observed)
    assert (1 in fed_back) == sends_it_later


@pytest.mark.parametrize("swapped", [False, True], ids=["own", "of-the-other"])
def test_what_a_replica_keeps_back_is_its_own(swapped: bool) -> None:
    kept: dict[tuple[int, int, str], Array] = {}

    def send_large(gradients, replica, step):
        sent = {}
        for path, gradient in gradients.items():
            owner = 1 - replica if swapped else replica
            due = gradient + kept.get((step - 1, owner, path), np.float32(0))
            sent[path] = np.where(np.abs(due) < np.median(np.abs(due)), 0, due)
            kept[step, replica, path] = due - sent[path]
        return sent

    evidence = observe(Fault(local=send_large), steps=3, sparse=False)
    first = judge(evidence).findings[0]
    assert (first.code, first.phase) == (
        ("unexplained" if swapped else "nonlinear-before-reduction"),
        "local_gradient",
    )
    assert ("adds them to its next one" in first.explanation) != swapped


def send_sign(values: list[Array]) -> Array:
    """The sign of a gradient times its mean size."""
    (value,) = values
    return (np.mean(np.abs(value)) * np.sign(value)).astype(value.dtype)


@pytest.mark.first(1)
@pytest.mark.parametrize("role", ["slot", "variable"])
@pytest.mark.parametrize("keeps", [True, False])
def test_the_first_step_tells_what_is_sent_where_the_rest_is_kept(
    keeps: bool, role: Literal["slot", "variable"]
) -> None:
    """What is made of the rest later is nothing that the bench knows."""
    evidence = observe(Fault(reduce=feed_back(send_sign)), steps=3, sparse=False)
    observed = evidence.observed
    rest = VariableInfo(
        path="rest", role=role, shape=(3,), dtype="float32", synchronised=not keeps
    )
    observed = replace(observed, variables=(*observed.variables, rest))
    first = judge(replace(evidence, observed=observed)).findings[0]
    code = "nonlinear-before-reduction" if keeps else "unexplained"
    assert (first.code, first.step) == (code, 0)
    assert ("what replicas keep of this step" in first.explanation) == keeps


@pytest.mark.parametrize("share", [1.0, 0.5], ids=["added", "averaged"])
@pytest.mark.parametrize("seen", [True, False])
def test_what_one_device_does_to_a_gradient_is_known_of_each_replicas(
    seen: bool, share: float
) -> None:
    """Whatever it is: here a rule that no other cause foretells."""

    def flatten(value: Array) -> Array:
        return np.arctan(3 * value)

    evidence = observe(
        Fault(reduce=each(lambda value: share * flatten(value))),
        alone=lambda g: {path: flatten(value) for path, value in g.items()},
        sparse=False,
        steps=2,
    )
    observed = evidence.observed
    handed = {
        replace(key, phase="reduced_gradient"): flatten(value)
        for key, value in observed.select(phase="local_gradient")
    }
    apart = replace(observed, values=handed) if seen else None
    findings = judge(change_evidence(evidence, apart=apart)).findings
    first = findings[0]
    assert first.phase == "reduced_gradient"
    assert (first.code == "nonlinear-before-reduction") == seen
    assert ("what one device does to the sum" in first.explanation) == seen
    assert ("replicas' are averaged" in first.explanation) == (seen and share < 1)


def centre(gradients: dict[str, Array]) -> dict[str, Array]:
    return {k: (v - v.mean()).astype(v.dtype) for k, v in gradients.items()}


def round_half(value: Array) -> Array:
    return value.astype(np.float16).astype(value.dtype)


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("send", "narrow", "code"),
    [
        (lambda v: clip_norm(v, 0.2), False, "clip-before-reduction"),
        (lambda v: v * (np.abs(v) > 0.1), False, "nonlinear-before-reduction"),
        (round_half, False, "lower-precision"),
        (round_half, True, "lower-precision"),
    ],
    ids=["clip", "mask", "half", "half-on-one-device-too"],
)
def test_what_is_done_behind_a_linear_change_is_told(
    send: Callable[[Array], Array], narrow: bool, code: str
) -> None:
    """One device centres its gradients, and may send them in a narrow dtype as well."""

    def change(gradients: dict[str, Array]) -> dict[str, Array]:
        made = centre(gradients)
        return {k: round_half(v) for k, v in made.items()} if narrow else made

    def reduce(locals_: list[dict[str, Array]], step: int) -> list[dict[str, Array]]:
        sent = [{k: send(v) for k, v in change(g).items()} for g in locals_]
        return [add_up(sent)] * len(locals_)

    evidence = observe(
        Fault(reduce=reduce), alone=change, sparse=False, steps=2, replicas=3
    )
    observed = evidence.observed
    handed: dict[TraceKey, Array] = {}
    for step in range(2):
        for replica in range(3):
            select = observed.select(step=step, phase="local_gradient", replica=replica)
            found = dict(select)
            made = change({key.variable: value for key, value in found.items()})
            handed |= {
                replace(key, phase="reduced_gradient"): made[key.variable]
                for key in found
            }
    first = judge(
        change_evidence(evidence, apart=replace(observed, values=handed))
    ).findings[0]
    assert first.code == code
    assert first.warning == (code == "lower-precision")


@pytest.mark.first(3)
@pytest.mark.parametrize(
    ("draws", "after", "code", "words"),
    [
        (True, False, "nonlinear-before-reduction", "before the sum than the others"),
        (True, True, "replicas-diverged", "other elements of the sum than the others"),
        (False, False, "unexplained", ""),
    ],
    ids=["before-the-sum", "after-the-sum", "nothing-is-drawn"],
)
def test_masks_that_each_replica_draws_are_told(
    draws: bool, after: bool, code: str, words: str
) -> None:
    """One device multiplies by 2 what the mask of replica 0 keeps."""
    rng = np.random.default_rng(11)
    masks: dict[tuple[str, int], Array] = {}

    def mask(gradients: dict[str, Array], replica: int) -> dict[str, Array]:
        for path, value in gradients.items():
            kept = rng.random(value.shape) < 0.5
            masks.setdefault((path, replica), 2 * kept.astype(value.dtype))
        return {path: v * masks[path, replica] for path, v in gradients.items()}

    def reduce(locals_: list[dict[str, Array]], step: int) -> list[dict[str, Array]]:
        if after:
            return [mask(add_up(locals_), r) for r in range(len(locals_))]
        return [add_up([mask(g, r) for r, g in enumerate(locals_)])] * len(locals_)

    evidence = observe(
        Fault(reduce=reduce),
        alone=lambda g: mask(g, 0),
        sparse=False,
        steps=2,
        replicas=3,
    )
    observed = evidence.observed
    handed = {
        replace(key, phase="reduced_gradient"): value * masks[key.variable, 0]
        for key, value in observed.select(phase="local_gradient")
    }
    notes = {"draws": {"train.py:3": "subject"} if draws else {}}
    first = judge(
        change_evidence(
            evidence,
            observed=replace(observed, notes={**observed.notes, **notes}),
            reference=replace(
                evidence.reference, notes={**evidence.reference.notes, **notes}
            ),
            apart=replace(observed, values=handed),
        )
    ).findings[0]
    assert (first.code, first.phase) == (code, "reduced_gradient")
    assert words in first.explanation
    assert ("at train.py:3" in first.explanation) == draws


@pytest.mark.first(1)
@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize(
    ("keeps_own", "code"),
    [(True, "missing-reduction"), (False, "nonlinear-before-reduction")],
    ids=["parts", "left-out"],
)
def test_parts_that_nobody_gathers_are_no_elements_left_out(
    keeps_own: bool, code: str, replicas: int
) -> None:
    """Each replica sums two thirds of the elements; or it sends these alone."""

    def find_part(value: Array, replica: int) -> Array:
        place = np.arange(value.size).reshape(value.shape)
        return (place + replica) % 3 > 0

    def reduce(locals_: list[dict[str, Array]], step: int) -> list[dict[str, Array]]:
        total = add_up(locals_)
        parts = []
        for replica, gradients in enumerate(locals_):
            mine = {k: find_part(v, replica) for k, v in gradients.items()}
            rest = gradients if keeps_own else {k: 0 * v for k, v in gradients.items()}
            which = total if keeps_own else gradients
            parts.append({k: np.where(mine[k], which[k], rest[k]) for k in gradients})
        return parts if keeps_own else [add_up(parts)] * len(locals_)

    evidence = observe(Fault(reduce=reduce), replicas=replicas, sparse=False, steps=2)
    first = judge(evidence).findings[0]
    assert (first.code, first.phase) == (code, "reduced_gradient")
    assert ("the rest are of its own" in first.explanation) is keeps_own
