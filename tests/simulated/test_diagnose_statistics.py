"""What a step by hand makes of wrong statistics, and of copies that stand still."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from training_simulator import observe

from distbench.compare.arrays.measure import BITWISE
from distbench.compare.arrays.pair import GLOBAL, Pair
from distbench.diagnose.causes.chosen import explain_cases
from distbench.diagnose.clues.context import Context
from distbench.trace import INITIAL, WHOLE, Phase, TraceKey, VariableInfo

N = 2
RNG = np.random.default_rng(8)
BASE, STEP, OTHER, CURVED = (RNG.normal(size=30) for _ in range(4))
OWN = [RNG.normal(size=30) for _ in range(N)]
Copies = dict[str, list[np.ndarray | None]]


def make_key(variable: str, replica: int, phase: Phase = "variable") -> TraceKey:
    return TraceKey(step=0, phase=phase, variable=variable, replica=replica)


def make_context(
    due: dict[str, np.ndarray],
    seen: Copies,
    *,
    phase: Phase = "variable",
    led: tuple[str, ...] = (),
    owned: dict[str, str] | None = None,
    **subject: tuple[str, ...],
) -> Context:
    """Wrong values of some variables.

    Args:
        due: What one device has.
        seen: What each replica has; None is what is due.
        phase: Of all.
        led: State of which one device makes something else of each shard.
        owned: Of a slot, what it belongs to.
        subject: What else is known.
    """
    evidence = observe()
    infos = tuple(
        VariableInfo(
            path=path,
            role="slot" if phase == "slot" else "variable",
            shape=BASE.shape,
            dtype="float64",
            trainable=path not in led,
            of=(owned or {}).get(path, ""),
        )
        for path in due
    )
    values = {make_key(path, WHOLE, phase): value for path, value in due.items()}
    values |= {
        make_key(path, replica, phase): own
        for path in led
        for replica, own in enumerate(OWN)
    }
    trained = [path for path in due if path not in led]
    values |= {make_key(path, WHOLE, "local_gradient"): STEP for path in trained}
    evidence = change_evidence(
        evidence,
        observed=replace(evidence.observed, replicas=N, variables=infos),
        reference=replace(evidence.reference, variables=infos, values=values),
        **subject,
    )
    cases, right = [], set()
    for path, copies in seen.items():
        for replica, copy in enumerate(copies):
            if copy is None:
                right.add(make_key(path, replica, phase))
                continue
            cases.append(
                Pair(
                    key=make_key(path, replica, phase),
                    relation="reference",
                    against=GLOBAL,
                    observed=copy,
                    expected=due[path],
                    margin=BITWISE,
                    dtype="float64",
                    base=BASE,
                )
            )
    return Context(
        evidence=evidence, phase=phase, cases=tuple(cases), right=frozenset(right)
    )


def explain(context: Context) -> dict[str, set[str]]:
    causes = explain_cases(context)
    return {c.code: {case.key.variable for case in c.cases} for c in causes}


@pytest.mark.parametrize(
    ("steered", "wrong", "named"),
    [
        pytest.param(("w",), (0, 1), {"curved"}, id="steered"),
        pytest.param((), (0, 1), {"curved", "w"}, id="on-its-own"),
        pytest.param(("w",), (0,), {"curved", "w"}, id="elsewhere"),
    ],
)
def test_what_a_wrong_statistic_moves_is_left_out(
    steered: tuple[str, ...], wrong: tuple[int, ...], named: set[str]
) -> None:
    """But not on a replica where the statistic is right."""
    due = {"curved": CURVED, "w": BASE - STEP / CURVED}
    held = sum(own**2 for own in OWN)
    seen: Copies = {
        "curved": [held if r in wrong else None for r in range(N)],
        "w": [BASE - np.cos(STEP)] * N,
    }
    context = make_context(due, seen, led=("curved",), steered=steered)
    found = explain(context)
    assert set.union(*found.values()) == named
    assert found["statistics-not-synchronized"] == {"curved"}


TOTAL = sum(OWN)


@pytest.mark.parametrize(
    ("due", "held", "times", "is_averaged"),
    [
        pytest.param(CURVED, CURVED / N, 2, True, id="a-sum-not-of-shards"),
        pytest.param(CURVED, CURVED / N, 1, False, id="nothing-that-adds-up"),
        pytest.param(CURVED, CURVED / N**2, 2, False, id="another-number"),
    ],
)
def test_a_statistic_that_holds_an_nth_of_what_adds_up_is_averaged(
    due: np.ndarray, held: np.ndarray, times: int, is_averaged: bool
) -> None:
    """Twice as much of each example is twice of what adds up, whatever shards leave."""
    context = make_context({"curved": due}, {"curved": [held] * N}, led=("curved",))
    [cause] = explain_cases(double_shards(context, times))
    assert (cause.code == "mean-instead-of-sum") == is_averaged
    assert cause.ratio == (1 / N if is_averaged else None)
    assert ("aggregation MEAN" in cause.advice) == is_averaged


@pytest.mark.parametrize("falls", [True, False])
def test_the_least_of_sums_is_averaged_if_some_step_keeps_a_sum(falls: bool) -> None:
    """Where the total is not less, the mean of the shares is what replicas keep."""
    due = {"fell": TOTAL if falls else BASE, "rose": BASE}
    seen: Copies = dict.fromkeys(due, [TOTAL / N] * N)
    context = make_context(due, seen, led=tuple(due))
    [cause] = explain_cases(double_shards(context, 2))
    assert (cause.code == "mean-instead-of-sum") == falls


def test_what_is_known_of_one_statistic_is_told_beside_an_unknown_one() -> None:
    due = {"odd": CURVED, "mean": CURVED}
    seen: Copies = {"odd": [np.tanh(TOTAL)] * N, "mean": [TOTAL / N] * N}
    context = make_context(due, seen, led=tuple(due))
    known, unknown = explain_cases(double_shards(context, 1))
    assert "the mean of what the examples of each replica give" in known.detail
    assert "nor is it" in unknown.detail
    assert (known.foretells, unknown.foretells) == (True, False)
    assert {case.key.variable for case in known.cases} == {"mean"}
    assert {case.key.variable for case in unknown.cases} == {"odd"}


def test_nothing_is_said_of_shards_that_nobody_ran() -> None:
    context = make_context({"odd": CURVED}, {"odd": [OTHER] * N}, led=("odd",))
    reference = context.evidence.reference
    values = {k: v for k, v in reference.values.items() if k.replica == WHOLE}
    reference = replace(reference, values=values)
    evidence = change_evidence(context.evidence, reference=reference)
    [cause] = explain_cases(replace(context, evidence=evidence))
    assert (cause.code, cause.foretells) == ("statistics-not-synchronized", False)
    assert "nor is it" not in cause.detail


@pytest.mark.parametrize(
    ("due", "kept", "code"),
    [
        pytest.param(CURVED, 0.9, "statistics-not-synchronized", id="part-of-the-way"),
        pytest.param(CURVED, 1.0, "statistics-not-synchronized", id="added"),
        pytest.param(TOTAL / N, 0.9, "scale-error", id="even-shards"),
        pytest.param(TOTAL - 0.9 * BASE, 0.8, "hyperparameter-differs", id="a-sum"),
    ],
)
def test_a_statistic_that_goes_to_the_sum_of_means_is_told(
    due: np.ndarray, kept: float, code: str
) -> None:
    """Of each shard the old value is in what it leaves. A sum that is due is right."""
    held = TOTAL - (N - 1) * kept * BASE
    context = make_context({"mean": due}, {"mean": [held] * N}, led=("mean",))
    [cause] = explain_cases(double_shards(context, 1))
    assert (cause.code, cause.foretells) == (code, True)


def double_shards(context: Context, times: int) -> Context:
    """The same with what shards leave of every example twice.

    Args:
        context: Of state that the examples lead.
        times: How many times what they leave of every example once.
    """
    led = {case.key.variable for case in context.cases}
    reference = context.evidence.reference
    before = {
        TraceKey(step=INITIAL, phase="variable", variable=path): BASE for path in led
    }
    doubled = {make_key(p, r): times * own for p in led for r, own in enumerate(OWN)}
    observed = {case.key: case.observed for case in context.cases}
    evidence = change_evidence(
        context.evidence,
        reference=replace(reference, values={**reference.values, **before}),
        observed=replace(context.evidence.observed, values=observed),
        probes={"doubled": replace(reference, values=doubled)},
    )
    return replace(context, evidence=evidence)


@pytest.mark.parametrize("variables", [1, 2])
def test_copies_that_stand_still_while_others_move_are_told(variables: int) -> None:
    """Of each variable they may be another replica's."""
    due = {"w": BASE - STEP, "v": BASE - OTHER}
    seen: Copies = {"w": [BASE, None], "v": [None, BASE]}
    seen = dict(list(seen.items())[:variables])
    [cause] = explain_cases(make_context(due, seen))
    assert cause.code == "replicas-diverged"
    assert "takes no update while others do" in cause.detail
    assert ("'w' of replica 0 and 'v' of replica 1" in cause.detail) == (variables > 1)


@pytest.mark.parametrize("off", [-1e-16, 0.0, 1e-16])
def test_a_variable_that_stands_still_everywhere_is_no_other_rate(off: float) -> None:
    """Whatever rounding makes of a step of no length."""
    due = {"w": BASE - STEP}
    [cause] = explain_cases(make_context(due, {"w": [BASE - off * STEP] * N}))
    assert cause.code == "scale-error"
    assert cause.detail == "it stays as it was, where one device changes it"


@pytest.mark.parametrize("owner", ["", "v", "w"])
def test_slots_may_be_made_of_a_wrong_one_that_is_no_variables(owner: str) -> None:
    """Or of another one of their variable."""
    due = {"w/m": OTHER, "stat": CURVED}
    seen: Copies = {"w/m": [np.sin(OTHER)] * N, "stat": [sum(OWN) / N] * N}
    context = make_context(due, seen, phase="slot", owned={"w/m": "w", "stat": owner})
    apart = {make_key("stat", r, "slot"): own for r, own in enumerate(OWN)}
    apart |= {make_key("w/m", r, "slot"): OTHER for r in range(N)}
    trace = replace(context.evidence.observed, values=apart)
    evidence = change_evidence(context.evidence, apart=trace)
    found = explain(replace(context, evidence=evidence))
    assert found.pop("slot-from-local-gradient") == {"stat"}
    assert found == ({"unexplained": {"w/m"}} if owner == "v" else {})
