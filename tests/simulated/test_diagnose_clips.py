"""Clips before the sum: by tensors, units, elements and slices, of all norms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gradient_values import (
    add_up,
    clip_all,
    clip_norm,
    map_values,
    measure_all,
    scale,
    to_array,
)
from swept import swept
from training_simulator import (
    BIAS,
    HEAD,
    KERNEL,
    TRAINED,
    Fault,
    Setup,
    Simulation,
    observe,
)
from wrong_steps import each

from distbench.compare.arrays.measure import Margin
from distbench.compare.arrays.pair import SUM, Pair
from distbench.diagnose.clues.addends import Source
from distbench.diagnose.hypotheses import limits
from distbench.diagnose.hypotheses.limits import sum_clipped
from distbench.diagnose.hypotheses.norms import ELEMENTS
from distbench.diagnose.judge import judge
from distbench.trace import WHOLE, TraceKey


@pytest.mark.parametrize(
    ("limit", "part", "words"),
    [
        (0.05, 1.0, "to 0.05 before the replicas' gradients are added up (to 2 times "),
        (
            0.05,
            0.5,
            "to 0.025 before the replicas' gradients are added up (to 2 times ",
        ),
        (1.5, 1.0, "to 1.5 before the replicas' gradients are added up ("),
        (1.5, 0.5, "to 1.5 before the replicas' gradients are averaged ("),
    ],
    ids=["all", "all-averaged", "some", "some-averaged"],
)
def test_what_becomes_of_clipped_gradients_is_told(limit, part, words):
    """Where all are clipped, a mean is a sum to a smaller limit."""
    clip = each(lambda v: clip_norm(v, limit))

    def reduce(locals_, step):
        return [
            {path: scale(g, part) for path, g in total.items()}
            for total in clip(locals_, step)
        ]

    (finding,) = judge(observe(Fault(reduce=reduce))).findings
    assert finding.code == "clip-before-reduction"
    assert words in finding.explanation


@pytest.mark.parametrize(
    ("share", "most", "code", "words"),
    [
        (0.5, 1.0, "clip-before-reduction", "to 0.5 times that of the variable"),
        (0.01, 1.0, "clip-before-reduction", "to 0.01 times that of the variable"),
        (
            2.0,
            np.inf,
            "nonlinear-before-reduction",
            "its gradient to 2 times the norm of the variable",
        ),
    ],
    ids=["some-clipped", "all-clipped", "made-equal"],
)
def test_a_trust_ratio_of_each_replicas_gradient_is_named(share, most, code, words):
    """One cause for all variables, though each has a norm of its own."""
    weights = Simulation(Setup()).initial

    def follow(gradients):
        return {
            path: scale(
                g,
                min(
                    most,
                    share * np.linalg.norm(weights[path]) / np.linalg.norm(to_array(g)),
                ),
            )
            for path, g in gradients.items()
        }

    def reduce(locals_, step):
        return [add_up([follow(g) for g in locals_]) for _ in locals_]

    evidence = observe(Fault(reduce=reduce), steps=1, alone=follow)
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase) == (code, "reduced_gradient")
    assert words in finding.explanation


def measure_units(value):
    axes = tuple(range(np.ndim(value) - 1)) or None
    return np.sqrt(np.sum(np.square(value, dtype=np.float64), axis=axes, keepdims=True))


@pytest.mark.first(3)
@pytest.mark.parametrize("replicas", [2, 4])
@pytest.mark.parametrize("share", [0.02, 0.3], ids=["most-clipped", "some-clipped"])
@pytest.mark.parametrize("by_weights", [True, False], ids=["by-weights", "alike"])
def test_a_clip_of_each_units_gradient_is_named(by_weights, share, replicas):
    """One limit for all columns of kernels, or one share of those of the weights."""
    weights = Simulation(Setup()).initial

    def clip(path, gradient):
        array = to_array(gradient)
        # As adaptive clips do, so that what starts at 0 can leave it.
        limit = np.maximum(measure_units(weights[path]), 1e-3) if by_weights else 1.0
        return (array * np.minimum(1.0, share * limit / measure_units(array))).astype(
            array.dtype
        )

    def follow(gradients):
        return {path: clip(path, gradient) for path, gradient in gradients.items()}

    def reduce(locals_, step):
        return [add_up([follow(g) for g in locals_]) for _ in locals_]

    evidence = observe(
        Fault(reduce=reduce), steps=1, replicas=replicas, alone=follow, sparse=False
    )
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase) == (
        "clip-before-reduction",
        "reduced_gradient",
    )
    words = f"each unit's gradient to {share:g} " + "times that of" * by_weights
    assert words in finding.explanation


@pytest.mark.parametrize("limit", [0.4, 0.1], ids=["few-clipped", "most-clipped"])
@pytest.mark.parametrize("replicas", [2, *swept(3)])
def test_elements_of_slices_are_clipped_one_by_one(replicas, limit):
    """As TensorFlow does with a sparse gradient, whose rows are added up later."""
    clip = each(lambda v: map_values(v, lambda a: np.clip(a, -limit, limit)))
    evidence = observe(Fault(reduce=clip), replicas=replicas, steps=1)
    (finding,) = judge(evidence).findings
    assert finding.code == "clip-before-reduction"
    assert f"elements to ±{limit:g}, slice by slice" in finding.explanation


@pytest.mark.parametrize("limit", [0.4, 0.1], ids=["few-clipped", "most-clipped"])
def test_a_limit_is_found_by_few_elements(monkeypatch, limit):
    """Of a large value, those that a clip has changed and as many others do."""
    monkeypatch.setattr(limits, "_ENOUGH", 2)
    clip = each(lambda v: map_values(v, lambda a: np.clip(a, -limit, limit)))
    evidence = observe(Fault(reduce=clip), replicas=2, steps=1, sparse=False)
    (finding,) = judge(evidence).findings
    assert finding.code == "clip-before-reduction"
    assert f"elements to ±{limit:g} " in finding.explanation


@pytest.mark.parametrize("seed", [0, 13, 18])
def test_no_other_limit_leaves_less(seed):
    """Sizes far apart make several valleys, of which the deepest counts."""
    rng = np.random.default_rng(seed)
    terms = tuple(rng.normal(size=8) * 10 ** rng.uniform(-1, 1, 8) for _ in range(3))
    key = TraceKey(step=0, phase="reduced_gradient", variable=KERNEL)
    case = Pair(
        key=key,
        relation="reference",
        against=SUM,
        observed=sum(np.clip(t, -0.5, 0.5) for t in terms) + 0.3 * rng.normal(size=8),
        expected=sum(terms),
        margin=Margin(),
        dtype="float32",
    )
    source = Source(number=0, case=case, terms=terms, replicas=(0, 1, 2))

    def measure_rest(limit):
        return np.linalg.norm(case.observed - sum_clipped(source, ELEMENTS, limit))

    found = limits.fit_limit([source], ELEMENTS)
    others = np.linspace(0, np.max(np.abs(terms)), 1000)
    least = min(measure_rest(limit) for limit in others)
    assert measure_rest(found) <= least * (1 + 1e-12)


def cancel(trace, own):
    """Opposite gradients of one number in the first step; 0 where they are added up."""
    whole = {"local_gradient": sum(own), "reduced_gradient": sum(own)}
    values = dict(trace.values)
    for key in values:
        if (key.step, key.variable) == (0, HEAD) and key.phase in whole:
            is_sum = key.phase == "reduced_gradient" and key.replica != WHOLE
            value = whole[key.phase] if key.replica == WHOLE else own[key.replica]
            values[key] = np.full_like(values[key], 0 if is_sum else value)
    return replace(trace, values=values)


def test_what_cancels_is_explained_by_the_cause_of_the_rest():
    clip = each(lambda v: map_values(v, lambda a: np.clip(a, -1e-3, 1e-3)))
    evidence = observe(Fault(reduce=clip), replicas=2)
    evidence = replace(
        evidence,
        observed=cancel(evidence.observed, (0.5, -0.3)),
        reference=cancel(evidence.reference, (0.5, -0.3)),
    )
    (finding,) = judge(evidence).findings
    assert finding.code == "clip-before-reduction"
    assert set(finding.variables) == set(TRAINED)


def clip_jointly(join, limit):
    """Every replica's share of a clip of the sum, by a norm that is none of it."""

    def reduce(locals_, step):
        size = join(np.array([measure_all(g) for g in locals_]))
        total = {p: to_array(v) for p, v in add_up(locals_).items()}
        factor = min(1.0, limit / size)
        return [{p: scale(v, factor) for p, v in total.items()} for _ in locals_]

    return reduce


@pytest.mark.first(2)
@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize(
    ("join", "words"),
    [
        (np.linalg.norm, "the root of the sum of the squares of the replicas'"),
        (np.max, "the largest of the replicas'"),
        (np.mean, "a sum or mean of the replicas'"),
    ],
    ids=["root", "largest", "mean"],
)
def test_a_clip_by_a_norm_that_is_made_of_the_replicas_norms_is_named(
    join, words, replicas, sparse
):
    limit = 0.3
    evidence = observe(
        Fault(reduce=clip_jointly(join, limit)),
        alone=lambda g: clip_all({p: to_array(v) for p, v in g.items()}, limit),
        replicas=replicas,
        sparse=sparse,
        steps=3,
    )
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase) == (
        "clip-before-reduction",
        "reduced_gradient",
    )
    assert words in finding.explanation


def test_another_factor_in_each_step_is_no_such_clip():
    def reduce(locals_, step):
        total = {p: to_array(v) for p, v in add_up(locals_).items()}
        return [{p: scale(v, (0.7, 0.4)[step]) for p, v in total.items()}] * 2

    (finding,) = judge(observe(Fault(reduce=reduce), sparse=False)).findings
    assert finding.code == "scale-error"


def clip_rounding(value, limit):
    """As TensorFlow does: what is below the limit is multiplied and divided by it."""
    norm = float(np.linalg.norm(to_array(value)))
    return scale(scale(value, limit), 1 / max(norm, limit))


@pytest.mark.parametrize("some", [(0, 1), (1,)], ids=["all", "some"])
def test_sums_below_the_limit_may_be_rounded(some):
    """One device clips nothing, so these are held against the sums of their addends."""

    def reduce(locals_, step):
        clipped = [
            {path: clip_rounding(g, 1.1) for path, g in own.items()} for own in locals_
        ]
        kept = [clipped[r] if r in some else own for r, own in enumerate(locals_)]
        return [add_up(kept)] * len(locals_)

    (finding,) = judge(observe(Fault(reduce=reduce), sparse=False)).findings
    assert (finding.code, finding.replicas) == ("clip-before-reduction", some)
    assert "to 1.1 before" in finding.explanation


@pytest.mark.parametrize(
    ("step", "code"), [(1, "scale-error"), (0, "clip-before-reduction")]
)
def test_a_limit_that_a_larger_sum_goes_beyond_is_none(step, code):
    """Of what one replica alone has, any clip leaves a multiple."""

    def reduce(locals_, at):
        total = add_up(locals_)
        if at == step:
            total[BIAS] = scale(total[BIAS], 0.8)
        return [total for _ in locals_]

    judgement = judge(observe(Fault(reduce=reduce), shards=(16, 0)))
    assert [f.code for f in judgement.findings] == [code]
