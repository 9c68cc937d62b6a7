"""What is said of averages and slow weights that follow other variables wrongly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from training_simulator import observe

from distbench.compare.arrays.measure import BITWISE
from distbench.compare.arrays.pair import GLOBAL, Pair
from distbench.diagnose.causes.rank import find_best
from distbench.diagnose.clues.context import Context
from distbench.diagnose.hypotheses.register import list_hypotheses
from distbench.diagnose.hypotheses.summed_ends import explain_by_summed_ends
from distbench.trace import WHOLE, Phase, TraceKey, VariableInfo

N, KEPT = 2, 0.9
BEFORE = np.array([1.0, -2.0, 4.0])
HEAD_BEFORE, HEAD = np.array([2.0, 0.5, 3.0]), np.array([2.5, 0.25, 2.0])
Move = Callable[[np.ndarray, np.ndarray], np.ndarray]


def go(value: np.ndarray, end: np.ndarray) -> np.ndarray:
    return KEPT * value + (1 - KEPT) * end


def go_twice(value: np.ndarray, end: np.ndarray) -> np.ndarray:
    return go(go(value, end), end)


def go_to_sum(value: np.ndarray, end: np.ndarray) -> np.ndarray:
    return go(value, N * end)


def go_for_each(value: np.ndarray, end: np.ndarray) -> np.ndarray:
    return N * KEPT * value + (1 - KEPT) * end


def go_nearly_to_sum(value: np.ndarray, end: np.ndarray) -> np.ndarray:
    return go(value, 0.98 * N * end)


def make_context(
    move: Move,
    end: np.ndarray,
    *,
    copied: bool = False,
    taken: np.ndarray | None = None,
) -> Context:
    """A wrong average of the head, which the head is set to if it is `copied`.

    Args:
        move: What the cluster makes of the average and of what it goes to.
        end: What one device has it go to.
        copied: Whether the head is set to the average.
        taken: What the cluster has it go to, if that is something else.
    """
    evidence = observe()
    values = dict(evidence.observed.values)
    phase: Phase = "variable"
    state = {"average": move(BEFORE, end if taken is None else taken)}
    state["head"] = HEAD
    if copied:
        state["head"] = state["average"]
    for name, value in state.items():
        values[TraceKey(step=0, phase=phase, variable=name, replica=0)] = value
    values[TraceKey(step=0, phase="local_gradient", variable="head", replica=0)] = HEAD
    infos = [
        VariableInfo(path=name, role=phase, shape=HEAD.shape, dtype="float64")
        for name in ("average", "head")
    ]
    observed = replace(
        evidence.observed,
        values=values,
        variables=(*evidence.observed.variables, *infos),
    )
    start = {
        TraceKey(step=-1, phase=phase, variable="head"): HEAD_BEFORE,
        TraceKey(step=-1, phase=phase, variable="average"): BEFORE,
    }
    # No example leads it: shards alone leave what the whole batch does.
    for replica in (WHOLE, *range(N)):
        key = TraceKey(step=0, phase=phase, variable="average", replica=replica)
        start[key] = go(BEFORE, end)
    reference = replace(
        evidence.reference, values={**evidence.reference.values, **start}
    )
    cases = [
        Pair(
            key=TraceKey(step=0, phase=phase, variable=name, replica=0),
            relation="reference",
            against=GLOBAL,
            observed=state[name],
            expected=go(BEFORE, end),
            margin=BITWISE,
            dtype="float64",
            base=BEFORE if name == "average" else HEAD_BEFORE,
        )
        for name in (("average", "head") if copied else ("average",))
    ]
    return Context(
        evidence=replace(evidence, observed=observed, reference=reference),
        phase=phase,
        cases=tuple(cases),
    )


def name_cause(context: Context) -> tuple[str, float | None] | None:
    best = find_best(context, list_hypotheses(context))
    if best is None or not best.full:
        return None
    return best.hypothesis.code, best.hypothesis.ratio


@pytest.mark.parametrize("end", [HEAD_BEFORE, HEAD], ids=["before", "after"])
def test_an_average_that_goes_twice_to_what_it_follows_is_told(end: np.ndarray) -> None:
    assert name_cause(make_context(go_twice, end)) == ("update-repeated", 2.0)


def make_quick_start(
    lefts: tuple[float, ...],
    times: float,
    phase: Phase = "variable",
    *,
    led: float = 0.0,
    taken: tuple[float, ...] = (),
) -> Context:
    """A wrong average that goes a larger part of its way at first, too often.

    Args:
        lefts: What one device leaves of the way in each step.
        times: How often the cluster goes it.
        phase: What the average is.
        led: By how much more each replica's own shard leads it than the last one's.
        taken: What the cluster leaves, if it is something else.
    """
    evidence = observe()
    key = TraceKey(step=0, phase=phase, variable="average", replica=0)
    seen, due = dict(evidence.observed.values), dict(evidence.reference.values)
    cases = []
    for step, left in enumerate(lefts):
        before, end = BEFORE * (1 + step), HEAD / (1 + step)
        expected = left * before + (1 - left) * end
        other = taken[step] if taken else left**times
        observed = other * before + (1 - other) * end
        at = replace(key, step=step)
        head = replace(at, phase="variable", variable="head")
        seen[at], seen[head] = observed, end
        seen[replace(head, phase="local_gradient")] = HEAD
        for replica in (WHOLE, *range(N)):
            due[at.at(replica)] = expected + led * (1 + replica)
            due[head.at(replica)] = end
        cases.append(
            Pair(
                key=at,
                relation="reference",
                against=GLOBAL,
                observed=observed,
                expected=expected,
                margin=BITWISE,
                dtype="float64",
                base=before,
            )
        )
    infos = [
        VariableInfo(path=name, role=role, of=owner, shape=HEAD.shape, dtype="float64")
        for name, role, owner in (
            ("average", phase, "head" if phase == "slot" else ""),
            ("head", "variable", ""),
        )
    ]
    variables = (*evidence.observed.variables, *infos)
    return Context(
        evidence=replace(
            evidence,
            observed=replace(evidence.observed, values=seen, variables=variables),
            reference=replace(evidence.reference, values=due),
        ),
        phase=phase,
        cases=tuple(cases),
    )


def test_an_average_that_starts_quickly_is_told_to_be_repeated() -> None:
    """Parts of 0.8 and 0.6 of a way, as where β = min(0.99, (1 + t) / (10 + t))."""
    assert name_cause(make_quick_start((0.2, 0.4), 2)) == ("update-repeated", 2.0)


@pytest.mark.parametrize("phase", ["variable", "slot"])
def test_one_that_starts_in_another_step_is_told(phase: Phase) -> None:
    context = make_quick_start((1, 1, 0), 1, phase, taken=(0, 0.5, 0.75))
    best = find_best(context, list_hypotheses(context))
    assert best is not None
    assert best.full
    assert best.hypothesis.code == "hyperparameter-differs"
    words = "goes 1, 0.5, 0.25 in steps 0, 1, 2, and 0, 0, 1 on one device"
    assert words in best.hypothesis.detail


def test_an_average_that_shards_lead_is_told_to_be_repeated() -> None:
    """A shard that goes on alone has weights, and averages of them, of its own."""
    context = make_quick_start((0.9, 0.9), 2, led=0.5)
    assert name_cause(context) == ("update-repeated", 2.0)


@pytest.mark.parametrize("lefts", [(0.9, 0.9), (0.2, 0.4)], ids=["even", "quick"])
def test_a_slot_that_follows_its_variable_is_told_to_be_repeated(
    lefts: tuple[float, ...],
) -> None:
    context = make_quick_start(lefts, 2, "slot")
    assert name_cause(context) == ("slot-repeated", 2.0)


def test_nothing_is_said_of_a_learning_rate_where_none_is_taken() -> None:
    context = make_context(
        lambda value, end: value + 5 * (go(value, end) - value), HEAD
    )
    best = find_best(context, list_hypotheses(context))
    assert best is not None
    assert best.full
    assert best.hypothesis.code == "update-repeated"
    assert best.hypothesis.detail == "the update is applied 5 times in one step"


def test_one_that_starts_quickly_and_goes_no_whole_times_is_not() -> None:
    code, _ = name_cause(make_quick_start((0.2, 0.4), 1.4)) or ("", None)
    assert code != "update-repeated"


@pytest.mark.parametrize("end", [HEAD_BEFORE, HEAD], ids=["before", "after"])
def test_an_average_of_summed_copies_is_told(end: np.ndarray) -> None:
    assert name_cause(make_context(go_to_sum, end)) == ("scale-error", 2.0)


def test_a_variable_that_is_set_to_what_follows_it_wrongly_is_told_with_it() -> None:
    context = make_context(go_to_sum, HEAD, copied=True)
    assert name_cause(context) == ("scale-error", 2.0)


def test_an_average_whose_old_value_is_added_up_is_no_sum_of_what_it_follows() -> None:
    assert name_cause(make_context(go_for_each, HEAD)) != ("scale-error", 2.0)


def test_nor_is_one_that_goes_nearly_as_far_as_the_sum() -> None:
    assert not list(explain_by_summed_ends(make_context(go_nearly_to_sum, HEAD)))


def test_one_that_stays_where_it_is_has_its_turn_in_other_steps() -> None:
    context = make_context(lambda value, _: value, HEAD)
    best = find_best(context, list_hypotheses(context))
    assert best is not None
    assert best.full
    assert best.hypothesis.code == "hyperparameter-differs"
    assert "it stays as it was" in best.hypothesis.detail


@pytest.mark.parametrize(
    ("due", "taken", "words"),
    [
        (HEAD, HEAD_BEFORE, "before the step, and on one device as it is after it"),
        (HEAD_BEFORE, HEAD, "after the step, and on one device as it is before it"),
    ],
    ids=["too-early", "too-late"],
)
def test_an_average_that_is_moved_at_another_turn_is_told(
    due: np.ndarray, taken: np.ndarray, words: str
) -> None:
    context = make_context(go, due, taken=taken)
    best = find_best(context, list_hypotheses(context))
    assert best is not None
    assert best.full
    assert words in best.hypothesis.detail


def test_an_average_of_nothing_that_is_known_is_not_told_to_be() -> None:
    found = name_cause(make_context(go, HEAD, taken=HEAD + HEAD_BEFORE))
    assert found != ("hyperparameter-differs", None)


@pytest.mark.parametrize("has_same", [False, True], ids=["alone", "on-both"])
def test_one_that_goes_to_what_a_buffer_held_is_late(has_same: bool) -> None:
    """It is filled with where to go; one device leaves it, or goes there later."""
    context = make_context(go, HEAD, taken=HEAD_BEFORE)
    evidence = context.evidence
    seen = {
        k: v for k, v in evidence.observed.values.items() if k.phase != "local_gradient"
    }
    key = TraceKey(step=0, phase="variable", variable="head", replica=WHOLE)
    due = {**evidence.reference.values, key: HEAD if has_same else HEAD_BEFORE}
    changed = replace(
        evidence,
        observed=replace(evidence.observed, values=seen),
        reference=replace(evidence.reference, values=due),
    )
    context = replace(context, evidence=changed)
    best = find_best(context, list_hypotheses(context))
    assert best is not None
    assert best.full
    assert best.hypothesis.code == (
        "hyperparameter-differs" if has_same else "stale-read"
    )
