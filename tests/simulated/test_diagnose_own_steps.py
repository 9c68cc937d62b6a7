"""What replicas do each for themselves: steps, state and noise behind the sum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from training_simulator import TRAINED, Fault, observe

from distbench.compare.arrays.measure import BITWISE
from distbench.compare.arrays.pair import GLOBAL, Pair
from distbench.diagnose.causes.chosen import explain_cases
from distbench.diagnose.causes.drift import name_apart
from distbench.diagnose.causes.rank import find_best
from distbench.diagnose.clues.context import Context
from distbench.diagnose.hypotheses.by_hand import (
    explain_by_own_steps,
    explain_by_parts_of_owners,
)
from distbench.diagnose.hypotheses.nonlinear import explain_by_own_noise
from distbench.diagnose.hypotheses.slot_spread import explain_by_own_squares
from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.trace import WHOLE, Phase, Trace, TraceKey, VariableInfo

N, RATE = 2, 0.125
RNG = np.random.default_rng(5)
BASE = RNG.normal(size=40)
OWN = [RNG.normal(size=40) for _ in range(N)]
TOTAL = OWN[0] + OWN[1]


def make_key(variable: str, replica: int, phase: Phase = "variable") -> TraceKey:
    return TraceKey(step=0, phase=phase, variable=variable, replica=replica)


def make_cases(
    variable: str,
    observed: list[np.ndarray],
    expected: np.ndarray,
    phase: Phase = "variable",
) -> tuple[Pair, ...]:
    return tuple(
        Pair(
            key=make_key(variable, replica, phase),
            relation="reference",
            against=GLOBAL,
            observed=value,
            expected=expected,
            margin=BITWISE,
            dtype="float64",
            base=BASE if phase == "variable" else 0.0,
        )
        for replica, value in enumerate(observed)
    )


def feed(evidence: Evidence, value: np.ndarray, replica: int) -> Trace:
    """One device with the gradient of a replica alone."""
    return replace(
        evidence.observed,
        values={make_key("w", 0): value},
        notes={"kept": (replica,), "factor": 1.0, "narrow": ""},
    )


@pytest.mark.parametrize("way", ["added up", "averaged", "outvoted"])
def test_steps_of_own_signs_are_told_with_how_they_are_put_together(way: str) -> None:
    evidence = observe()
    steps = [-RATE * np.sign(own) for own in OWN]
    made = {"added up": sum(steps), "averaged": sum(steps) / N}
    if way == "outvoted":
        steps.append(-RATE * np.sign(OWN[0] + 2 * OWN[1]))
    made["outvoted"] = RATE * np.sign(sum(np.sign(step) for step in steps))
    replicas = len(steps)
    evidence = change_evidence(
        evidence,
        observed=replace(evidence.observed, replicas=replicas),
        sums=tuple(feed(evidence, BASE + s, r) for r, s in enumerate(steps)),
    )
    due = BASE - RATE * np.sign(TOTAL)
    context = Context(
        evidence=evidence,
        phase="variable",
        cases=make_cases("w", [BASE + made[way]], due),
    )
    best = find_best(context, explain_by_own_steps(context))
    assert best is not None
    assert best.full
    assert best.hypothesis.code == "nonlinear-before-reduction"
    assert way in best.hypothesis.detail


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_signs_that_are_outvoted_beside_a_decay_are_told(factor: float) -> None:
    evidence = observe()
    decay = -0.25 * BASE
    signs = [np.sign(own) for own in (*OWN, OWN[0] + 2 * OWN[1])]
    fed = [feed(evidence, BASE + decay - RATE * s, r) for r, s in enumerate(signs)]
    notes = [{**trace.notes, "factor": factor} for trace in fed]
    evidence = change_evidence(
        evidence,
        observed=replace(evidence.observed, replicas=3),
        sums=tuple(replace(t, notes=n) for t, n in zip(fed, notes, strict=True)),
    )
    made = BASE + decay - RATE * np.sign(sum(signs))
    due = BASE + decay - RATE * np.sign(TOTAL)
    cases = make_cases("w", [made], due)
    context = Context(evidence=evidence, phase="variable", cases=cases)
    best = find_best(context, explain_by_own_steps(context))
    assert best is not None
    assert best.full
    assert "outvoted by their median" in best.hypothesis.detail
    assert ("N times its own" in best.hypothesis.detail) == (factor == 3)


@pytest.mark.parametrize(
    ("places", "is_told"),
    [
        pytest.param(np.arange(40) >= 25, True, id="parts"),
        pytest.param(np.arange(40) % 2 == 1, False, id="in-no-order"),
        pytest.param(np.arange(40) >= 40, False, id="one-alone"),
    ],
)
def test_parts_that_owners_make_of_their_own_gradients_are_told(
    places: np.ndarray, is_told: bool
) -> None:
    evidence = observe()
    alone = [BASE - RATE * own for own in OWN]
    sums = tuple(feed(evidence, value, r) for r, value in enumerate(alone))
    observed = replace(evidence.observed, replicas=N)
    evidence = change_evidence(evidence, observed=observed, sums=sums)
    made = np.where(places, alone[1], alone[0])
    cases = make_cases("w", [made] * N, BASE - RATE * TOTAL)
    context = Context(evidence=evidence, phase="variable", cases=cases)
    codes = [found.code for found in explain_by_parts_of_owners(context)]
    assert codes == ["missing-reduction"] * is_told


MEAN = 0.25 * OWN[0] - 0.5
"""A mean that the model keeps, which is no multiple of the sum."""
SQUARES = {
    "averaged": lambda own: np.mean([(N * g - MEAN) ** 2 for g in own], axis=0),
    "own-averaged": lambda own: np.mean([(g - MEAN) ** 2 for g in own], axis=0),
    "added-up": lambda own: np.sum([(g - MEAN) ** 2 for g in own], axis=0),
    "without-the-mean": lambda own: (
        (TOTAL - MEAN) ** 2 - TOTAL**2 + np.sum(np.square(own), axis=0)
    ),
}


@pytest.mark.parametrize("squares", SQUARES.values(), ids=SQUARES)
@pytest.mark.parametrize("more", [0.0, 0.5], ids=["squares", "more"])
def test_squares_of_own_gradients_about_a_mean_are_told(squares, more: float) -> None:
    """Something else that is too much is none."""
    infos = tuple(
        VariableInfo(path=path, role="variable", shape=(40,), dtype="float64")
        for path in ("w", "mean", "square")
    )
    own = {make_key("w", r, "local_gradient"): g for r, g in enumerate(OWN)}
    evidence = observe()
    mean = {make_key("mean", WHOLE): MEAN}
    evidence = change_evidence(
        evidence,
        observed=replace(evidence.observed, variables=infos, values=own),
        reference=replace(evidence.reference, variables=infos, values=mean),
        kept=("square",),
    )
    due = 0.1 * (TOTAL - MEAN) ** 2
    seen = 0.1 * squares(OWN) + more * np.abs(OWN[0])
    cases = make_cases("square", [seen], due)
    context = Context(evidence=evidence, phase="variable", cases=cases)
    best = find_best(context, explain_by_own_squares(context))
    if more:
        assert best is None or not best.full
        return
    assert best is not None
    assert best.full
    assert best.hypothesis.code == "slot-from-local-gradient"


def make_kept(rows: list[np.ndarray]) -> Context:
    """A wrong kernel whose step is divided by rows, which hold what is given."""
    evidence = observe()
    apart = {make_key("rows", r): own**2 for r, own in enumerate(OWN)}
    infos = tuple(
        VariableInfo(path=path, role="variable", shape=(40,), dtype="float64")
        for path in ("w", "rows")
    )
    evidence = change_evidence(
        evidence,
        observed=replace(evidence.observed, variables=infos),
        reference=replace(evidence.reference, variables=infos),
        apart=replace(evidence.observed, values=apart),
        kept=("rows",),
    )
    steps = [BASE - RATE * TOTAL / np.sqrt(row) for row in rows]
    cases = (
        *make_cases("rows", rows, TOTAL**2),
        *make_cases("w", steps, BASE - RATE * np.sign(TOTAL)),
    )
    return Context(evidence=evidence, phase="variable", cases=cases)


def test_a_kernel_follows_from_state_that_keeps_own_gradients() -> None:
    [cause] = explain_cases(make_kept([own**2 for own in OWN]))
    assert cause.code == "slot-from-local-gradient"
    assert {case.key.variable for case in cause.cases} == {"rows"}


def test_state_that_nothing_explains_takes_no_kernel_along() -> None:
    causes = explain_cases(make_kept([np.exp(own) for own in OWN]))
    assert {case.key.variable for c in causes for case in c.cases} == {"rows", "w"}


def add_up(added: list[np.ndarray]) -> Context:
    """Sums to which each replica adds something, in a step that draws numbers."""
    evidence = observe()
    seen = [TOTAL + more for more in added]
    values = {make_key("w", r, "reduced_gradient"): v for r, v in enumerate(seen)}
    values |= {make_key("w", r, "local_gradient"): v for r, v in enumerate(OWN)}
    evidence = replace(
        evidence,
        observed=replace(evidence.observed, values=values),
        reference=replace(evidence.reference, notes={"draws": {"a.py:7": "subject"}}),
    )
    cases = make_cases("w", seen, TOTAL, "reduced_gradient")
    return Context(evidence=evidence, phase="reduced_gradient", cases=cases)


def test_noise_of_each_replica_behind_the_sum_is_told_with_its_line() -> None:
    context = add_up([0.1 * RNG.normal(size=40) for _ in range(N)])
    [cause] = explain_by_own_noise(context)
    assert cause.code == "replicas-diverged"
    assert "a.py:7" in cause.detail


@pytest.mark.parametrize(
    "added",
    [[0.1 * RNG.normal(size=40)] * N, [0.5 * own for own in OWN]],
    ids=["equal", "own-gradient"],
)
def test_what_is_equal_or_of_the_own_gradient_is_no_own_noise(
    added: list[np.ndarray],
) -> None:
    assert not list(explain_by_own_noise(add_up(added)))


@pytest.mark.parametrize(
    ("steps", "code", "words"),
    [
        pytest.param(
            [0.25 * TOTAL, 2 * TOTAL],
            "replicas-diverged",
            "a number of its own",
            id="length",
        ),
        pytest.param(
            [np.cos(OWN[0]), np.sin(OWN[1])],
            "replicas-diverged",
            "in another way",
            id="any",
        ),
        pytest.param([np.cos(OWN[0])] * 2, "unexplained", "no known cause", id="alike"),
    ],
)
def test_copies_that_are_changed_by_hand_go_apart(
    steps: list[np.ndarray], code: str, words: str
) -> None:
    evidence = observe()
    made = [BASE - step for step in steps]
    held = {make_key("w", replica): copy for replica, copy in enumerate(made)}
    info = VariableInfo(path="w", role="variable", shape=BASE.shape, dtype="float64")
    taught = {make_key("w", WHOLE, "local_gradient"): TOTAL}
    evidence = replace(
        evidence,
        observed=replace(evidence.observed, values=held, variables=(info,)),
        reference=replace(evidence.reference, values=taught, variables=(info,)),
    )
    cases = make_cases("w", made, BASE - TOTAL)
    context = Context(evidence=evidence, phase="variable", cases=cases)
    (told,) = explain_cases(context)
    assert (told.code, words in told.detail) == (code, True), told


@pytest.mark.parametrize(
    ("places", "are_apart"),
    [pytest.param([3, 3], False, id="same"), pytest.param([3, 4], True, id="others")],
)
def test_copies_with_nan_in_the_same_elements_are_equal(
    places: list[int], are_apart: bool
) -> None:
    evidence = observe()
    made = [np.where(np.arange(BASE.size) == place, np.nan, BASE) for place in places]
    held = {make_key("w", replica): copy for replica, copy in enumerate(made)}
    evidence = replace(evidence, observed=replace(evidence.observed, values=held))
    cases = make_cases("w", made, BASE)
    context = Context(evidence=evidence, phase="variable", cases=cases)
    assert (name_apart(context) is not None) == are_apart


@pytest.mark.parametrize(
    ("setup", "moved", "code"),
    [
        ({}, (1,), "replicas-diverged"),
        ({}, (0, 1), "unexplained"),
        ({"central": True}, (0,), "unexplained"),  # of one copy for all replicas
    ],
)
def test_replicas_go_apart_where_another_one_has_a_copy_that_is_right(
    setup: dict[str, bool], moved: tuple[int, ...], code: str
) -> None:
    def update(new, old, gradients, run):
        rng = np.random.default_rng(99)
        return {
            path: (value + rng.normal(size=value.shape)).astype(value.dtype)
            if path in TRAINED and run.replica in moved
            else value
            for path, value in new.items()
        }

    finding = judge(observe(Fault(update=update), steps=1, **setup)).findings[0]
    assert (finding.code, finding.phase) == (code, "variable")
