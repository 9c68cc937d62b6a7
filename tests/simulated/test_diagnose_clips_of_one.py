"""Clips that one device makes of the sum, and no replica of its own gradient."""

from __future__ import annotations

import numpy as np
import pytest
from evidence_changes import change_apart
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
    KERNEL,
    Fault,
    observe,
)
from wrong_steps import each

from distbench.diagnose.judge import judge


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


@pytest.mark.parametrize("replicas", [1, 2, *swept(4)])
def test_a_clip_by_less_than_one_device_clips_by_is_one_finding(replicas):
    """The cluster goes by each tensor's norm, one device by that of all of them."""
    setup = {"replicas": replicas, "steps": 3, "sparse": False}
    local = [
        (key.variable, float(np.linalg.norm(value)))
        for key, value in observe(**setup).observed.values.items()
        if key.phase == "local_gradient"
    ]
    smallest = min(norm for _, norm in local)
    limit = 1.5 * smallest
    assert limit < max(norm for _, norm in local)
    evidence = observe(
        Fault(reduce=each(lambda value: clip_norm(value, limit))),
        alone=lambda gradients: clip_all(gradients, 0.5 * limit),
        **setup,
    )
    (finding,) = judge(evidence).findings
    assert finding.code == "clip-before-reduction"
    assert f"norm of each variable's gradient to {limit:.6g}" in finding.explanation


@pytest.mark.parametrize(
    ("due", "words"),
    [(True, "and one device to "), (False, "and one device does not")],
    ids=["another-limit", "none"],
)
def test_a_limit_of_a_step_of_one_replica_is_another_one(due, words):
    """Nothing is added up there, and the norm is the same."""
    setup = {"replicas": 1, "steps": 3, "sparse": False}
    plain = observe(**setup)
    norms = list_norms(plain, "local_gradient", 0)
    limit, middle = 0.75 * min(norms), (min(norms) + max(norms)) / 2
    evidence = observe(
        Fault(reduce=lambda own, _: [clip_all(own[0], limit)]),
        alone=lambda own: clip_all(own, middle) if due else own,
        **setup,
    )
    (finding,) = judge(evidence).findings
    assert finding.code == "hyperparameter-differs"
    assert words in finding.explanation


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
    words = f"one device clips the global norm of the sum to {limit:.6g}"
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


@pytest.mark.parametrize("replicas", [2, *swept(4)])
@pytest.mark.parametrize("reached", ["all", "some", "none"])
def test_a_mean_that_is_clipped_and_added_up_is_clipped_to_n_times_the_limit(
    reached, replicas
):
    """Where all reach that it is N times the sum, where none does it is the sum."""
    setup = {"replicas": replicas, "steps": 3, "sparse": False}
    norms = sorted(list_norms(observe(**setup), "reduced_gradient", 0))
    # Later steps have other norms, once one is clipped.
    beyond = {"all": 0.5 * norms[0], "some": np.mean(norms), "none": 1.5 * norms[-1]}
    limit = beyond[reached] / replicas

    def reduce(locals_, step):
        means = {
            path: scale(value, 1 / replicas) for path, value in add_up(locals_).items()
        }
        clipped = clip_all(means, limit)
        return [{p: scale(g, replicas) for p, g in clipped.items()} for _ in locals_]

    def clip(gradients):
        return clip_all(gradients, limit)

    evidence = observe(Fault(reduce=reduce), alone=clip, **setup)
    (finding,) = judge(change_apart(evidence, clip)).findings
    code, words = {
        "all": ("double-reduction", f"the sum is {replicas} times too large"),
        "some": ("double-reduction", f"to {replicas} times that, as where the mean is"),
        "none": ("hyperparameter-differs", "or the mean, which is then added up"),
    }[reached]
    assert finding.code == code
    assert words in finding.explanation
    assert "divide by the replicas what it is handed" in finding.explanation


@pytest.mark.parametrize("replicas", [2, *swept(3)])
def test_a_sum_whose_elements_have_another_limit_is_told(replicas: int) -> None:
    """A part of all elements is larger, so it is no factor of any value."""
    setup = {"replicas": replicas, "steps": 2, "sparse": False}
    limit = 0.3

    def clip(gradients, limit):
        return {
            path: map_values(g, lambda a: np.clip(a, -limit, limit).astype(a.dtype))
            for path, g in gradients.items()
        }

    evidence = observe(
        Fault(reduce=lambda own, _: [clip(add_up(own), limit / replicas)] * replicas),
        alone=lambda own: clip(own, limit),
        **setup,
    )
    (finding,) = judge(evidence).findings
    assert finding.code == "hyperparameter-differs"
    assert finding.ratio == pytest.approx(1 / replicas, rel=1e-4)
    assert f"elements to ±{limit:g}, and the cluster to" in finding.explanation


@pytest.mark.parametrize("is_factor", [True, False], ids=["factor", "limit"])
@pytest.mark.parametrize(
    ("place", "times"),
    [(-0.55, 1.5), (0.1, 1.02), (-0.1, 1.05)],
    ids=["none", "one-below-both", "one-between"],
)
def test_another_limit_is_told_from_a_factor_by_sums_that_reach_no_limit(
    place: float, times: float, is_factor: bool
) -> None:
    """Of sums beyond both limits each makes the same of all."""
    setup = {"replicas": 2, "steps": 3}
    least, second, _ = list_norms(observe(**setup), "reduced_gradient", 0)
    limit = least + place * (second - least if times < 1.1 else least)

    def reduce(own, step):
        del step
        total = add_up(own)
        if not is_factor:
            return [clip_all(total, times * limit)] * 2
        clipped = clip_all(total, limit)
        return [{path: scale(g, times) for path, g in clipped.items()}] * 2

    evidence = observe(
        Fault(reduce=reduce), alone=lambda own: clip_all(own, limit), **setup
    )
    (finding,) = judge(evidence).findings
    if is_factor and times < 1.1:
        assert finding.code == "scale-error"
        return
    assert finding.code == "hyperparameter-differs"
    assert finding.ratio == pytest.approx(times, rel=1e-4)
    assert f"clips the global norm of the sum to {limit:.6g}" in finding.explanation
    both = "or there is a factor behind the clip"
    assert (both in finding.explanation) == (times > 1.1)
