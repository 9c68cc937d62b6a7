"""Clips before the sum: by tensors, units, elements and slices, of all norms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gradient_values import add_up, clip_norm, map_values, scale, to_array
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

from distbench.compare.measure import Margin
from distbench.compare.pair import SUM, Pair
from distbench.diagnose.addends import Source
from distbench.diagnose.hypotheses import limits
from distbench.diagnose.hypotheses.limits import sum_clipped
from distbench.diagnose.hypotheses.norms import ElementNorm
from distbench.diagnose.judge import judge
from distbench.trace import WHOLE, TraceKey


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
    norm = ElementNorm()

    def measure_rest(limit):
        return np.linalg.norm(case.observed - sum_clipped(source, norm, limit))

    found = limits.fit_limit([source], norm)
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


@pytest.mark.parametrize("is_norm", [False, True], ids=["elements", "norm"])
@pytest.mark.parametrize("share", [1.0, 0.9], ids=["same-clip", "other-clip"])
def test_a_sum_of_gradients_too_small_to_be_clipped_is_due_clipped(
    is_norm: bool, share: float
) -> None:
    """No replica's bias reaches the limit, their sum does; one device clips that."""
    size = np.linalg.norm if is_norm else lambda a: np.max(np.abs(a))
    shards = [
        value
        for key, value in observe(replicas=2).observed.values.items()
        if (key.step, key.phase, key.variable) == (0, "local_gradient", BIAS)
    ]
    limit = 1.01 * max(map(size, shards))
    assert limit < size(sum(shards))

    def clip(value, limit=limit):
        if is_norm:
            return clip_norm(value, limit)
        return map_values(value, lambda a: np.clip(a, -limit, limit).astype(a.dtype))

    def clip_alone(gradients):
        limits = {BIAS: share * limit}
        return {k: clip(v, limits.get(k, limit)) for k, v in gradients.items()}

    evidence = observe(
        Fault(reduce=each(clip)), replicas=2, steps=1, sparse=False, alone=clip_alone
    )
    findings = judge(evidence).findings
    codes = {name: f.code for f in findings for name in f.variables}
    assert codes[KERNEL] == "clip-before-reduction"
    due = "clip-before-reduction"
    if share < 1:
        # One norm may be due to anything; elements agree on a limit of their own,
        # beyond which replicas have some.
        due = "scale-error" if is_norm else "hyperparameter-differs"
    assert codes[BIAS] == due
    # Nothing that happens to addends explains their plain sum.
    assert "wrong-pairing" not in codes.values()
    assert not any("weigh" in finding.explanation for finding in findings)
    assert (len(findings) == 1) == (share == 1.0)


def measure_all(gradients):
    """The global norm."""
    return np.sqrt(
        sum(np.sum(to_array(g).astype(np.float64) ** 2) for g in gradients.values())
    )


def clip_all(gradients, limit):
    factor = min(1.0, limit / measure_all(gradients))
    return {path: scale(to_array(g), factor) for path, g in gradients.items()}


def list_norms(run, phase, replica):
    """The global norm in each step."""
    trace = run.observed
    steps = range(trace.steps)
    found = (trace.select(step=s, phase=phase, replica=replica) for s in steps)
    return [measure_all(dict(pairs)) for pairs in found]


@pytest.mark.first(2)
@pytest.mark.parametrize("share", [1.0, 0.5], ids=["none-reaches", "all-reach"])
@pytest.mark.parametrize("replicas", [2, 4])
def test_a_clip_that_only_one_device_does_is_named(replicas, share):
    """One device clips the sum in all steps, to one norm; the cluster just sums."""
    setup = {"replicas": replicas, "steps": 3, "sparse": False}
    plain = observe(**setup)
    own = max(
        norm
        for replica in range(replicas)
        for norm in list_norms(plain, "local_gradient", replica)
    )
    assert own < min(list_norms(plain, "reduced_gradient", 0))
    limit = 1.1 * share * own  # later steps have other norms, once one is clipped
    evidence = observe(Fault(), alone=lambda g: clip_all(g, limit), **setup)
    (finding,) = judge(evidence).findings
    words = f"global norm of each replica's gradients to {limit:.6g}"
    assert words in finding.explanation
    code = "clip-before-reduction" if share == 1.0 else "hyperparameter-differs"
    assert finding.code == code


@pytest.mark.parametrize("is_norm", [True, False], ids=["norm", "elements"])
@pytest.mark.parametrize("replicas", [2, *swept(3)])
def test_a_clip_that_the_cluster_lacks_is_no_clip_before_the_sum(replicas, is_norm):
    """Every replica's gradient is beyond the limit, and is left as it is."""

    def clip(value):
        if is_norm:
            return clip_norm(value, 1e-3)
        return map_values(value, lambda a: np.clip(a, -0.1, 0.1))

    evidence = observe(
        Fault(),
        replicas=replicas,
        sparse=False,
        alone=lambda gradients: {p: clip(to_array(g)) for p, g in gradients.items()},
    )
    (finding,) = judge(evidence).findings
    assert finding.phase == "reduced_gradient"
    assert finding.code == "hyperparameter-differs"


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


@pytest.mark.parametrize(
    ("limit", "code"), [(1.05, "clip-before-reduction"), (0.95, "scale-error")]
)
def test_one_clip_of_one_device_is_told_by_the_steps_that_it_leaves(limit, code):
    """It clips one value of all steps: smaller ones have to be left as they are."""
    setup = {"replicas": 2, "steps": 3, "sparse": False}
    plain = observe(**setup)
    norms = {
        place: [
            float(np.linalg.norm(value))
            for _, value in plain.observed.select(
                phase=phase, variable=KERNEL, replica=replica
            )
        ]
        for place, (phase, replica) in {
            "sum": ("reduced_gradient", 0),
            "own": ("local_gradient", 0),
            "other": ("local_gradient", 1),
        }.items()
    }
    last = int(np.argmax(norms["sum"]))
    rest = [n for step, n in enumerate(norms["sum"]) if step != last]
    own = max(max(norms["own"]), max(norms["other"]), *rest)
    assert limit * own < norms["sum"][last]

    def clip(gradients):
        size = np.linalg.norm(gradients[KERNEL])
        is_clipped = abs(size - norms["sum"][last]) < 1e-2 * size
        return {
            p: clip_norm(g, limit * own) if is_clipped and p == KERNEL else g
            for p, g in gradients.items()
        }

    (finding,) = judge(observe(Fault(), alone=clip, **setup)).findings
    assert (finding.code, finding.variables) == (code, (KERNEL,))


def add_like_adasum(locals_, step):
    """Two replicas' gradients less what they share, variable by variable."""
    total = {}
    for path in locals_[0]:
        a, b = (to_array(g[path]).astype(np.float64) for g in locals_)
        dot = np.sum(a * b)
        total[path] = (1 - dot / (2 * np.sum(a * a))) * a
        total[path] += (1 - dot / (2 * np.sum(b * b))) * b
    return [{p: v.astype(np.float32) for p, v in total.items()}] * 2


@pytest.mark.first(1)
@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
def test_numbers_that_scale_each_replicas_gradient_are_told(sparse):
    """Of small variables nothing else is said, whatever comes near it."""
    evidence = observe(Fault(reduce=add_like_adasum), steps=3, sparse=sparse)
    (finding,) = judge(evidence).findings
    assert finding.code == "nonlinear-before-reduction"
    assert set(finding.variables) == set(TRAINED)
    assert "by a number that differs by variable or step" in finding.explanation


def scale_by_own_norm(locals_, step):
    """The sum, over each replica's own norm."""
    total = add_up(locals_)
    norms = [
        np.sqrt(sum(np.sum(to_array(v).astype(np.float64) ** 2) for v in g.values()))
        for g in locals_
    ]
    return [{p: scale(v, 1 / norm) for p, v in total.items()} for norm in norms]


def add_own_again(locals_, step):
    """The sum, and a tenth of each replica's own gradient."""
    total = add_up(locals_)
    return [
        {p: to_array(v) + np.float32(0.1) * to_array(g[p]) for p, v in total.items()}
        for g in locals_
    ]


@pytest.mark.parametrize(
    ("reduce", "words"),
    [
        (scale_by_own_norm, "multiplies the sum by a number of its own"),
        (add_own_again, "weighs all gradients by numbers of its own"),
    ],
)
def test_numbers_of_each_replica_that_scale_a_sum_are_told(reduce, words):
    evidence = observe(Fault(reduce=reduce), steps=3, sparse=False)
    first = judge(evidence).findings[0]
    assert (first.code, first.phase) == ("scale-error", "reduced_gradient")
    assert set(first.variables) == set(TRAINED)
    assert words in first.explanation


@pytest.mark.first(1)
@pytest.mark.parametrize("replicas", [2, 3])
def test_a_sum_of_some_that_is_clipped_lacks_the_others(replicas):
    """Of what was left out the clip hides how much it was, and not whose."""

    def lose_first(locals_, step):
        total = {p: to_array(v) for p, v in add_up(locals_[1:]).items()}
        return [clip_all(total, 0.3)] * len(locals_)

    evidence = observe(
        Fault(reduce=lose_first),
        alone=lambda g: clip_all(g, 0.3),
        replicas=replicas,
        sparse=False,
        steps=3,
    )
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.replicas) == ("replica-dropped", (0,))
