"""Two faults at once, of two variables or of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from faults_by_variable import (
    Combine,
    clip,
    double,
    go_on_alone,
    lose_last,
    make_fault,
    times,
)
from gradient_values import (
    add_up,
    add_values,
    clip_all,
    scale,
    to_array,
)
from simulated_rule import Rule
from training_simulator import BIAS, HEAD, KERNEL, TABLE, Fault, observe

from distbench.diagnose.judge import judge
from distbench.trace import Value


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("kernel", "bias", "codes"),
    [
        (double, go_on_alone, ("double-reduction", "variable-not-reduced")),
        (lose_last, clip, ("replica-dropped", "clip-before-reduction")),
        (times(1.37), lose_last, ("scale-error", "replica-dropped")),
    ],
    ids=["doubled-and-own", "lost-and-clipped", "scaled-and-lost"],
)
def test_each_variable_has_its_own_cause(
    kernel: Combine, bias: Combine, codes: tuple[str, str]
) -> None:
    fault = make_fault({KERNEL: kernel, BIAS: bias})
    findings = judge(observe(fault, replicas=2)).findings
    named = {f.variables: f.code for f in findings}
    assert named == {(KERNEL,): codes[0], (BIAS,): codes[1]}


def average(values: Sequence[Value], replica: int) -> Any:
    return scale(add_values(values), 1 / len(values))


def clear(values: Sequence[Value], replica: int) -> Any:
    return scale(values[replica], 0.0)


@pytest.mark.parametrize(
    ("others", "code"),
    [
        (average, "variable-not-reduced"),
        (clip, "variable-not-reduced"),
        (clear, "missing-reduction"),
    ],
)
def test_wrong_sums_are_reduced_as_well(others: Combine, code: str) -> None:
    """Beside them nobody forgot to sum; beside what each sets to 0, perhaps."""
    fault = make_fault(
        {**dict.fromkeys((KERNEL, HEAD, TABLE), others), BIAS: go_on_alone}
    )
    findings = judge(observe(fault, replicas=2)).findings
    (own,) = (f for f in findings if BIAS in f.variables)
    assert (own.code, own.variables) == (code, (BIAS,))
    assert ("while other variables" in own.explanation) == (code[0] == "v")


def test_a_number_that_is_averaged_is_reduced_as_well() -> None:
    """What one element has in several steps is no sign."""
    rest = dict.fromkeys((KERNEL, HEAD, TABLE), go_on_alone)
    evidence = observe(make_fault({**rest, BIAS: average}), replicas=2, width=1)
    codes = {f.variables[0]: f.code for f in judge(evidence).findings}
    assert codes[KERNEL] == "variable-not-reduced"
    assert codes[BIAS] == "mean-instead-of-sum"


@pytest.mark.first(2)
@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize(
    ("bias", "code"),
    [
        (average, "mean-instead-of-sum"),
        (go_on_alone, "variable-not-reduced"),
        (lose_last, "replica-dropped"),
    ],
)
def test_a_clip_of_some_is_told_beside_another_mistake(
    bias: Combine, code: str, replicas: int
) -> None:
    """What is clipped together is no more known of one variable, nor of all."""
    clipped = (KERNEL, HEAD, TABLE)

    def reduce(locals_: Sequence[Any], step: int) -> list[Any]:
        own = [clip_all({p: g[p] for p in clipped}, 0.3) for g in locals_]
        summed = {**add_up(locals_), **add_up(own)}
        rest = [g[BIAS] for g in locals_]
        return [{**summed, BIAS: bias(rest, r)} for r in range(len(locals_))]

    setup = {"replicas": replicas, "steps": 3, "sparse": False, "width": 8}
    findings = judge(observe(Fault(reduce=reduce), **setup)).findings
    named = {frozenset(f.variables): f for f in findings}
    assert {paths: f.code for paths, f in named.items()} == {
        frozenset(clipped): "clip-before-reduction",
        frozenset([BIAS]): code,
    }
    words = named[frozenset(clipped)].explanation
    assert "the joint norm of" in words
    assert " to 0.3 " in words


def test_a_mean_is_no_number_of_each_replica() -> None:
    """Addends that have numbers of their own leave it to its own cause."""
    rng = np.random.default_rng(4)

    def weigh(values: Sequence[Value], replica: int) -> Any:
        drawn = rng.uniform(0.2, 0.9, len(values))
        return add_values([scale(v, w) for v, w in zip(values, drawn, strict=True)])

    def reduce(locals_: Sequence[Any], step: int) -> list[Any]:
        ways = {KERNEL: weigh, HEAD: weigh, TABLE: weigh, BIAS: average}
        held = {p: way([g[p] for g in locals_], 0) for p, way in ways.items()}
        return [held] * len(locals_)

    setup = {"replicas": 3, "steps": 3, "sparse": False, "width": 8}
    findings = judge(observe(Fault(reduce=reduce), **setup)).findings
    assert {frozenset(f.variables): f.code for f in findings} == {
        frozenset((KERNEL, HEAD, TABLE)): "nonlinear-before-reduction",
        frozenset([BIAS]): "mean-instead-of-sum",
    }


def test_two_factors_are_told_apart() -> None:
    fault = make_fault({KERNEL: times(1.37), BIAS: times(0.75)})
    (finding,) = judge(observe(fault, replicas=2)).findings
    assert finding.code == "scale-error"
    assert f"of '{KERNEL}' it is 1.37 times" in finding.explanation
    assert f"of '{BIAS}' it is 0.75 times" in finding.explanation


def test_what_is_alike_is_told_once() -> None:
    parts = {KERNEL: times(1.37), HEAD: times(1.37), BIAS: times(0.75)}
    (finding,) = judge(observe(make_fault(parts), replicas=2)).findings
    assert f"of '{KERNEL}' (and 1 more) it is 1.37 times" in finding.explanation
    assert f"of '{BIAS}' it is 0.75 times" in finding.explanation
    assert finding.explanation.count("1.37 times") == 1


def test_a_wrong_loss_hides_no_wrong_sum() -> None:
    fault = make_fault({KERNEL: lose_last}, scale=lambda r, setup: setup.replicas)
    findings = judge(observe(fault, replicas=2)).findings
    codes = [(f.code, f.phase) for f in findings]
    assert codes == [
        ("loss-not-scaled", "loss"),
        ("replica-dropped", "reduced_gradient"),
    ]


Feed = Callable[[np.ndarray, Any, str], np.ndarray]


def take_own(old: np.ndarray, run: Any, path: str) -> np.ndarray:
    own = to_array(run.locals[run.replica][path])
    return old.dtype.type(run.rule.beta) * old + own


def draw(old: np.ndarray, run: Any, path: str) -> np.ndarray:
    drawn = np.random.default_rng([run.step, len(path)]).normal(size=old.shape)
    return drawn.astype(old.dtype)


@pytest.mark.parametrize(
    ("feeds", "codes"),
    [
        (
            {KERNEL: take_own, HEAD: draw},
            {KERNEL: "slot-from-local-gradient", HEAD: "slot-not-synchronized"},
        ),
        (
            {KERNEL: draw, HEAD: draw},
            {KERNEL: "slot-not-synchronized", HEAD: "slot-not-synchronized"},
        ),
    ],
    ids=["one-known", "none-known"],
)
def test_that_replicas_differ_hides_nothing_that_is_known(
    feeds: dict[str, Feed], codes: dict[str, str]
) -> None:
    def update(new, old, gradients, run):
        changed = dict(new)
        for path, feed in feeds.items() if run.replica == 1 else ():
            slot = changed[f"momentum/{path}"] = feed(
                old[f"momentum/{path}"], run, path
            )
            changed[path] = old[path] - slot.dtype.type(run.rule.rate) * slot
        return changed

    rule = Rule(name="momentum")
    findings = judge(observe(Fault(update=update), rule=rule, steps=3)).findings
    assert all(found.replicas == (1,) for found in findings)
    named = {path: found.code for found in findings for path in found.variables}
    assert named == {f"momentum/{path}": code for path, code in codes.items()}


@pytest.mark.parametrize("is_known", [True, False])
def test_nor_does_it_in_variables(is_known: bool) -> None:
    def update(new, old, gradients, run):
        if run.replica == 0:
            return new
        stray = new[HEAD] + draw(new[HEAD], run, HEAD)
        kernel = new[KERNEL] + draw(new[KERNEL], run, KERNEL)
        if is_known:
            kernel = old[KERNEL] + 3 * (new[KERNEL] - old[KERNEL])
        return {**new, KERNEL: kernel, HEAD: stray}

    findings = judge(observe(Fault(update=update), steps=3)).findings
    named = {path: found.code for found in findings for path in found.variables}
    known = "update-repeated" if is_known else "replicas-diverged"
    assert named == {KERNEL: known, HEAD: "replicas-diverged"}


def test_a_factor_of_some_gradients_is_not_said_of_the_loss() -> None:
    """A variable has no part in a loss that is another one besides."""

    def bend(gradients: Any, replica: int, step: int) -> Any:
        kernel = np.asarray(gradients[KERNEL])
        return {
            **gradients,
            BIAS: scale(gradients[BIAS], 0.0),
            KERNEL: kernel + np.cos(np.arange(kernel.size)).reshape(kernel.shape),
        }

    fault = Fault(local=bend, loss=lambda loss, r: loss + np.float32(1 + r))
    evidence = observe(fault, replicas=2, steps=3, shards_known=False, sparse=False)
    findings = judge(evidence).findings
    (factor,) = (f for f in findings if f.variables == (BIAS,))
    assert (factor.code, factor.phase) == ("scale-error", "local_gradient")
    (rest,) = (f for f in findings if f is not factor)
    assert (rest.code, rest.phase) == ("unexplained", "loss")


def test_what_is_wrong_on_one_replica_alone_says_nothing_of_other_variables() -> None:
    """No collective makes it; one that has N times a variable's sum does so on all."""

    def spoil(values: Sequence[Value], replica: int) -> Any:
        total = to_array(add_values(values))
        noise = np.random.default_rng(5).normal(size=total.shape)
        return total + noise.astype(np.float32) * (replica == 0)

    fault = make_fault({KERNEL: double, HEAD: spoil})
    findings = judge(observe(fault, replicas=3, steps=1)).findings
    told = [(f.code, f.variables, f.replicas) for f in findings]
    assert told[0] == ("double-reduction", (KERNEL,), (0, 1, 2))
    assert told[1][1:] == ((HEAD,), (0,))


def test_a_scale_is_told_beside_what_is_not_finite_in_a_later_step() -> None:
    """A finding is of its first step, and one of its variables of another."""

    def reduce(own: Sequence[Any], step: int) -> list[Any]:
        total = add_up(own)
        spoilt, bias = (KERNEL, 1.3) if step == 0 else (BIAS, np.nan)
        total = {**total, BIAS: scale(total[BIAS], bias)}
        if spoilt == KERNEL:
            total = {**total, KERNEL: scale(total[KERNEL], np.nan)}
        return [total] * len(own)

    told = {
        (f.code, f.variables) for f in judge(observe(Fault(reduce=reduce))).findings
    }
    assert told == {("nonfinite", (KERNEL, BIAS)), ("scale-error", (BIAS,))}
