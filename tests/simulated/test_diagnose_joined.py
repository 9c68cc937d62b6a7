"""Sums that are divided by norms which are made of the replicas' own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from gradient_values import Gradients, add_up, measure_all, scale, to_array
from hidden_sums import feed, feed_combined, hide_sums
from simulated_rule import Rule
from sum_pairs import make_sum_pair
from training_simulator import KERNEL, TRAINED, Fault, observe

from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.shown_sums import find_source
from distbench.diagnose.judge import judge
from distbench.diagnose.names import name_variables
from distbench.trace import Trace, VariableInfo
from distbench.verdict import Status

Measure = Callable[[Gradients], float]


def find_largest(gradients: Gradients) -> float:
    return max(float(np.abs(to_array(value)).max()) for value in gradients.values())


def add_sizes(gradients: Gradients) -> float:
    return float(sum(np.abs(to_array(value)).sum() for value in gradients.values()))


def divide(gradients: Gradients, size: float) -> Gradients:
    return {path: scale(g, 1 / size) for path, g in gradients.items()}


JOINED = {
    "the sum of": np.sum,
    "the mean of": np.mean,
    "the root of the sum of the squares of": lambda own: np.sqrt(np.sum(own**2)),
    "the largest of": np.max,
}


@pytest.mark.parametrize(
    ("measure", "what"),
    [
        (measure_all, "norms"),
        (find_largest, "largest elements"),
        (add_sizes, "sums of absolute values"),
    ],
    ids=["norm", "largest", "sum"],
)
@pytest.mark.parametrize("made", JOINED)
@pytest.mark.parametrize("added", [0.25, 1e-3])
@pytest.mark.parametrize("power", [1, 2], ids=["norm", "square"])
def test_a_size_made_of_those_of_the_addends_is_told(
    made: str, measure: Measure, what: str, added: float, power: int
) -> None:
    def reduce(locals_: list[Gradients], step: int) -> list[Gradients]:
        size = float(JOINED[made](np.array([measure(g) for g in locals_])))
        return [divide(add_up(locals_), size**power + added) for _ in locals_]

    def alone(gradients: Gradients) -> Gradients:
        return divide(gradients, measure(gradients) ** power + added)

    evidence = observe(
        Fault(reduce=reduce), replicas=3, steps=3, alone=alone, sparse=False
    )
    (finding,) = judge(evidence).findings
    assert finding.code == "nonlinear-before-reduction"
    assert finding.variables == TRAINED
    assert f"taken for that is {made} the replicas' own {what}" in finding.explanation
    assert ("by the square of the size" in finding.explanation) == (power == 2)


@pytest.mark.parametrize("rate", [2.0**-7, 2.0**-9, 2.0**-10])
def test_a_size_is_told_by_steps_that_rounding_moves(rate: float) -> None:
    """Nothing is added to it, and of small steps rounding makes less than that."""

    def make(size: float, gradients: Gradients) -> Gradients:
        return {path: scale(g, 1 / size) for path, g in gradients.items()}

    def reduce(locals_: list[Gradients], step: int) -> list[Gradients]:
        size = sum(map(measure_all, locals_))
        return [make(size, add_up(locals_)) for _ in locals_]

    evidence = observe(
        Fault(reduce=reduce),
        replicas=3,
        steps=3,
        alone=lambda gradients: make(measure_all(gradients), gradients),
        rule=Rule(rate=rate),
        sparse=False,
        shards_known=False,
    )
    (finding,) = judge(hide_sums(evidence)).findings
    assert finding.code == "nonlinear-before-reduction"
    assert "taken for that is the sum of the replicas' own norms" in finding.explanation


@pytest.mark.parametrize("of_all", [True, False], ids=["all", "each"])
@pytest.mark.parametrize("made", [*JOINED, "replica 1's of"])
def test_a_size_is_told_behind_a_momentum(made: str, of_all: bool) -> None:
    """Of what a momentum becomes only a part is in proportion to the sum."""
    rule, added = Rule(name="momentum"), 1e-3

    def join(own: list[Gradients]) -> float:
        sizes = np.array([measure_all(g) for g in own])
        return float(JOINED[made](sizes) if made in JOINED else sizes[1])

    def divide_by(own: list[Gradients]) -> Gradients:
        total = add_up(own)
        if of_all:
            return divide(total, join(own) + added)
        return {
            path: scale(g, 1 / (join([{path: one[path]} for one in own]) + added))
            for path, g in total.items()
        }

    def change(gradients: Gradients) -> Gradients:
        if of_all:
            return divide(gradients, measure_all(gradients) + added)
        sizes = {path: measure_all({path: g}) for path, g in gradients.items()}
        return {p: scale(g, 1 / (sizes[p] + added)) for p, g in gradients.items()}

    setup = {"replicas": 3, "steps": 3, "sparse": False, "shards_known": False}
    fault = Fault(reduce=lambda own, step: [divide_by(own)] * 3)
    seen = hide_sums(observe(fault, alone=change, rule=rule, **setup))
    ways = ("mean", "thrice", "none")
    sums = tuple(feed(seen, way, rule, change) for way in ways)
    (finding,) = judge(change_evidence(seen, sums=sums)).findings
    assert finding.code == "nonlinear-before-reduction"
    assert len(finding.variables) == len(TRAINED)
    assert f"taken for that is {made} the replicas' own norms" in finding.explanation


def measure_counted(gradients: Gradients, often: tuple[str, ...], times: int) -> float:
    """The norm of all gradients, some of which count several times."""
    squares = {path: measure_all({path: g}) ** 2 for path, g in gradients.items()}
    return sum(times ** (p in often) * s for p, s in squares.items()) ** 0.5


@pytest.mark.parametrize("often", [TRAINED[:1], TRAINED[1:]], ids=["one", "others"])
@pytest.mark.parametrize("shown", [True, False], ids=["seen", "by-hand"])
def test_variables_that_count_n_times_in_a_norm_are_named(
    often: tuple[str, ...], shown: bool
) -> None:
    def reduce(locals_: list[Gradients], step: int) -> list[Gradients]:
        total = add_up(locals_)
        return [divide(total, measure_counted(total, often, 3)) for _ in locals_]

    def alone(gradients: Gradients) -> Gradients:
        return divide(gradients, measure_all(gradients))

    setup = {"replicas": 3, "steps": 2, "sparse": False, "shards_known": shown}
    evidence = observe(Fault(reduce=reduce), alone=alone, **setup)
    evidence = evidence if shown else hide_sums(evidence)
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.variables) == ("double-reduction", TRAINED)
    assert f"the squares of {name_variables(often)} are added up" in finding.explanation


@pytest.mark.parametrize("is_known", [True, False], ids=["run", "not-run"])
def test_a_norm_that_is_summed_once_more_is_told_by_one_device(is_known: bool) -> None:
    """A factor alone would be one of the step."""

    def reduce(locals_: list[Gradients], step: int) -> list[Gradients]:
        total = add_up(locals_)
        return [divide(total, 3**0.5 * measure_all(total)) for _ in locals_]

    def alone(gradients: Gradients) -> Gradients:
        return divide(gradients, measure_all(gradients))

    rule = Rule()
    setup = {"replicas": 3, "steps": 2, "sparse": False, "shards_known": False}
    seen = hide_sums(observe(Fault(reduce=reduce), alone=alone, rule=rule, **setup))
    again = feed_combined(seen, lambda own: reduce(own, 0)[0], rule, lambda g: g)
    evidence = change_evidence(seen, again=again if is_known else None)
    (finding,) = judge(evidence).findings
    assert finding.code == (
        "double-reduction" if is_known else "hyperparameter-differs"
    )
    assert ("added up over the replicas once more" in finding.explanation) == is_known


def test_a_size_of_all_is_told_where_one_variables_own_gradients_are_not_known() -> (
    None
):
    def measure(gradients: Gradients) -> float:
        return find_largest({p: g for p, g in gradients.items() if p != KERNEL})

    def reduce(locals_: list[Gradients], step: int) -> list[Gradients]:
        size = sum(map(measure, locals_))
        return [divide(add_up(locals_), size) for _ in locals_]

    def alone(gradients: Gradients) -> Gradients:
        return divide(gradients, measure(gradients))

    def hide(trace: Trace) -> Trace:
        values = {
            key: value
            for key, value in trace.values.items()
            if (key.phase, key.variable) != ("local_gradient", KERNEL)
        }
        return replace(trace, values=values)

    fault = Fault(reduce=reduce)
    seen = observe(fault, replicas=3, steps=3, alone=alone, sparse=False)
    evidence = change_evidence(
        seen,
        observed=hide(seen.observed),
        reference=hide(seen.reference),
        twins=tuple(map(hide, seen.twins)),
    )
    (finding,) = judge(evidence).findings
    assert finding.code == "nonlinear-before-reduction"
    told = "is the sum of the replicas' own largest elements"
    assert told in finding.explanation


@pytest.mark.parametrize("of", [KERNEL, ""])
def test_a_slot_of_a_variable_is_led_by_its_gradient(of: str) -> None:
    evidence = observe(rule=Rule(name="momentum"), replicas=2, steps=1)
    path = f"momentum/{KERNEL}"
    info = VariableInfo(path=path, role="slot", shape=(2,), dtype="float32", of=of)
    observed = replace(evidence.observed, variables=(info,))
    case = replace(make_sum_pair(0, np.ones(2), [np.ones(2)] * 2), relation="follows")
    case = replace(case, key=replace(case.key, phase="slot", variable=path))
    context = Context(
        evidence=replace(evidence, observed=observed), phase="slot", cases=(case,)
    )
    assert find_source(context, case) == (of or path)


def test_the_norm_of_the_sum_is_right() -> None:
    def reduce(locals_: list[Gradients], step: int) -> list[Gradients]:
        total = add_up(locals_)
        return [divide(total, measure_all(total)) for _ in locals_]

    def alone(gradients: Gradients) -> Gradients:
        return divide(gradients, measure_all(gradients))

    setup = {"replicas": 3, "steps": 3, "sparse": False}
    evidence = observe(Fault(reduce=reduce), alone=alone, **setup)
    assert judge(evidence).status is Status.PASS


@pytest.mark.parametrize(
    ("least", "more"), [(0.5, 0.0), (0.5, 0.125), (1 + 1e-5, 0.0), (1 + 1e-4, 1e-4)]
)
def test_a_factor_that_no_norm_gives_is_none(least: float, more: float) -> None:
    def reduce(locals_: list[Gradients], step: int) -> list[Gradients]:
        factor = least + more * step
        total = add_up(locals_)
        return [{p: scale(g, factor) for p, g in total.items()} for _ in locals_]

    (finding,) = judge(observe(Fault(reduce=reduce), replicas=3, steps=3)).findings
    assert finding.code == "scale-error"


def scale_signs(gradients: Gradients, sizes: dict[str, float]) -> Gradients:
    return {
        path: (np.sign(value) * sizes[path] / value.size).astype(value.dtype)
        for path, value in gradients.items()
    }


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("made", JOINED)
def test_signs_that_are_scaled_by_sizes_of_the_addends_are_told(
    made: str, replicas: int
) -> None:
    """As compressions do: by the mean absolute value of what they send."""

    def measure(gradients: Gradients) -> dict[str, float]:
        return {path: add_sizes({path: value}) for path, value in gradients.items()}

    def reduce(locals_: list[Gradients], step: int) -> list[Gradients]:
        own = [measure(g) for g in locals_]
        sizes = {k: float(JOINED[made](np.array([o[k] for o in own]))) for k in own[0]}
        return [scale_signs(add_up(locals_), sizes) for _ in locals_]

    evidence = observe(
        Fault(reduce=reduce),
        replicas=replicas,
        alone=lambda gradients: scale_signs(gradients, measure(gradients)),
        sparse=False,
    )
    (finding,) = judge(evidence).findings
    assert finding.code == "nonlinear-before-reduction"
    assert f"{made} the replicas' own sums of absolute values" in finding.explanation
