"""Causes that faults drawn at random brought to light."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_changes import change_evidence
from gradient_values import add_up, clip_norm, map_values, scale, to_array
from planted_case import ADAM, MOMENTUM, Case, check_named, run_case
from swept import swept
from training_simulator import KERNEL, TRAINED, Fault, observe, reduce_with
from wrong_steps import each, of

from distbench.diagnose.judge import judge
from distbench.trace import WHOLE


def moments_of(choose):
    """Both moments of Adam take another gradient, and the variable follows them."""

    def update(new, old, gradients, run):
        changed = dict(new)
        for path in TRAINED:
            theta = old[path]
            t = theta.dtype.type
            g = to_array(choose(run, path)).astype(theta.dtype)
            m = t(0.75) * old[f"m/{path}"] + t(0.25) * g
            v = t(0.9) * old[f"v/{path}"] + t(0.1) * g * g
            changed[f"m/{path}"], changed[f"v/{path}"] = m, v
            step = m / (np.sqrt(v) + t(1e-3))
            changed[path] = (theta - t(run.rule.rate) * step).astype(theta.dtype)
        return changed

    return update


def own_clip(clip):
    """Every replica clips its own gradient, and nobody sums."""
    return lambda locals_, step: [{k: clip(v) for k, v in g.items()} for g in locals_]


def add_own_noise(new, old, gradients, run):
    """Langevin noise of each replica; that of the first is 0 in the first step."""
    rng = np.random.default_rng((run.step, run.replica))
    changed = dict(new)
    for path in TRAINED:
        noise = rng.normal(size=new[path].shape) * 1e-3
        if (run.step, run.replica) != (0, 0):
            changed[path] = (new[path] + noise).astype(new[path].dtype)
    return changed


def to_largest(value):
    return scale(value, 1 / np.max(np.abs(to_array(value))))


def to_length_together(locals_, step, length=37.0):
    """Every replica scales its gradients to one global norm, larger than they have."""
    sizes = [np.sqrt(sum(measure_norm(v) ** 2 for v in g.values())) for g in locals_]
    scaled = [
        {k: scale(v, length / size) for k, v in g.items()}
        for g, size in zip(locals_, sizes, strict=True)
    ]
    return [add_up(scaled) for _ in locals_]


def measure_norm(value):
    return np.linalg.norm(np.asarray(getattr(value, "values", value), np.float64))


def round_to_levels(value, levels):
    unit = np.max(np.abs(to_array(value))) / levels
    return map_values(to_array(value), lambda x: np.round(x / unit) * unit)


def round_to_levels_of_all(values, levels):
    """What is sent is whole numbers of one unit, that of the largest element of all."""
    arrays = [to_array(value) for value in values]
    unit = np.max(np.abs(arrays)) / levels
    return sum(np.round(a / unit).astype(np.float32) for a in arrays) * unit


def to_single(value):
    return map_values(value, lambda x: x.astype(np.float32))


CASES = [
    Case(
        name="slots-restarted-on-one-replica",
        code="slot-not-synchronized",
        phase="slot",
        replicas=(1,),
        fault=Fault(
            update=lambda new, old, g, run: (
                replace(run.rule, beta=0.25).update(old, g) if run.replica == 1 else new
            )
        ),
        setup={"rule": MOMENTUM},
        step=1,
        steps=2,
    ),
    Case(
        name="whole-adam-from-local",
        code="slot-from-local-gradient",
        phase="slot",
        variable=f"m/{KERNEL}",
        fault=Fault(update=moments_of(lambda run, path: run.locals[run.replica][path])),
        setup={"rule": ADAM},
    ),
    Case(
        name="whole-adam-from-local-times-n",
        code="slot-from-local-gradient",
        phase="slot",
        variable=f"m/{KERNEL}",
        fault=Fault(
            update=moments_of(
                lambda run, path: scale(run.locals[run.replica][path], 3.0)
            )
        ),
        setup={"rule": ADAM, "replicas": 3},
    ),
    Case(
        name="whole-adam-from-the-last-replica",
        code="slot-from-local-gradient",
        phase="slot",
        fault=Fault(update=moments_of(lambda run, path: run.locals[-1][path])),
        setup={"rule": ADAM},
    ),
    Case(
        name="own-norm-clipped-and-nothing-summed",
        code="missing-reduction",
        phase="reduced_gradient",
        variable=KERNEL,
        fault=Fault(reduce=own_clip(lambda v: clip_norm(v, 0.2))),
        setup={"rule": MOMENTUM},
    ),
    Case(
        name="larger-own-norms-clipped-and-nothing-summed",
        code="missing-reduction",
        phase="reduced_gradient",
        fault=Fault(reduce=own_clip(lambda v: clip_norm(v, 2.0))),
        setup={"rule": MOMENTUM, "sparse": False},
    ),
    Case(
        name="own-elements-clipped-and-nothing-summed",
        code="missing-reduction",
        phase="reduced_gradient",
        fault=Fault(
            reduce=own_clip(
                lambda v: map_values(to_array(v), lambda x: np.clip(x, -0.1, 0.1))
            )
        ),
        setup={"replicas": 3},
    ),
    Case(
        name="noise-that-differs-by-replica",
        code="replicas-diverged",
        phase="variable",
        fault=Fault(update=add_own_noise),
        steps=2,
    ),
    Case(
        name="largest-elements-made-equal-first",
        code="nonlinear-before-reduction",
        phase="reduced_gradient",
        variable=KERNEL,
        fault=Fault(reduce=each(to_largest)),
    ),
    *(
        Case(
            name=f"{levels}-levels",
            code="nonlinear-before-reduction",
            phase="reduced_gradient",
            fault=Fault(reduce=each(lambda v, k=levels: round_to_levels(v, k))),
        )
        for levels in (10, 101)
    ),
    *(
        Case(
            name=f"{levels}-levels-of-all",
            code="nonlinear-before-reduction",
            phase="reduced_gradient",
            fault=Fault(
                reduce=reduce_with(lambda v, k=levels: round_to_levels_of_all(v, k))
            ),
        )
        for levels in (19, 127)
    ),
    Case(
        name="double-precision-sent-in-single",
        code="lower-precision",
        phase="reduced_gradient",
        fault=Fault(reduce=each(to_single)),
        setup={"dtype": "float64"},
        warning=True,
    ),
]
ON_THREE = [
    Case(
        name="largest-elements-made-equal-on-three",
        code="nonlinear-before-reduction",
        phase="reduced_gradient",
        variable=KERNEL,
        fault=Fault(reduce=each(to_largest)),
        setup={"replicas": 3},
        steps=2,
    ),
    Case(
        name="global-norms-made-equal-first",
        code="nonlinear-before-reduction",
        phase="reduced_gradient",
        variable=KERNEL,
        fault=Fault(reduce=to_length_together),
        setup={"replicas": 3},
        steps=2,
    ),
]


@pytest.mark.first(6)
@pytest.mark.parametrize(
    "case", [*CASES, *swept(*ON_THREE)], ids=lambda case: case.name
)
def test_a_planted_fault_is_named(case):
    check_named(case, run_case(case))


@pytest.mark.parametrize("copy", [0, 1, 2])
def test_a_replica_that_starts_right_is_not_named_for_another(copy):
    def start(state, r):
        return {**state, KERNEL: state[KERNEL] * 2} if r == copy else state

    (finding,) = judge(observe(Fault(start=start), replicas=3)).findings
    assert finding.code == "initial-value-differs"
    assert (finding.variables, finding.replicas) == ((KERNEL,), (copy,))


def divide_by_constant(evidence):
    """Of a shard alone the reference has its share, as of a loss over a constant."""
    trace = evidence.reference
    values = {
        key: scale(value, trace.shards[key.replica] / sum(trace.shards))
        if key.replica != WHOLE and key.phase in ("loss", "local_gradient")
        else value
        for key, value in trace.values.items()
    }
    return replace(evidence, reference=replace(trace, values=values))


@pytest.mark.first(3)
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "mean"])
@pytest.mark.parametrize(
    ("code", "power"),
    [("loss-not-scaled", 0), ("mean-of-means", 1), ("loss-scaled-twice", 2)],
)
def test_a_mean_over_the_shard_is_told_whatever_one_device_divides_by(
    constant, code, power
):
    fault = Fault(scale=lambda r, setup: of(r, setup) / setup.replicas**power)
    evidence = observe(fault, replicas=3, shards_known=False)
    first = judge(divide_by_constant(evidence) if constant else evidence).findings[0]
    assert (first.code, first.phase) == (code, "loss")
    assert first.confidence > 0.999


def test_leaving_nothing_out_is_no_cause():
    """Σ of what was observed is what was observed, whatever is wrong with it."""
    local = Fault(
        local=lambda g, r, step: {
            k: map_values(v, lambda a: a**3) for k, v in g.items()
        }
    )
    evidence = observe(local, replicas=2)
    evidence = change_evidence(evidence, shards_known=False)
    first = judge(evidence).findings[0]
    assert "out of the sum" not in first.explanation


@pytest.mark.parametrize(
    "way", [np.sign, lambda v: v * (np.abs(v) > np.median(abs(v)))]
)
def test_one_replica_alone_does_nothing_before_a_sum(way):
    fault = Fault(reduce=each(lambda v: map_values(v, way)))
    evidence = observe(fault, replicas=1, steps=1, sparse=False)
    findings = judge(evidence).findings
    assert findings
    assert not any("every replica" in f.explanation for f in findings)


def test_no_gradient_at_all_is_no_multiple_of_a_sign():
    evidence = observe(Fault(reduce=each(lambda v: map_values(v, np.zeros_like))))
    first = judge(evidence).findings[0]
    assert first.phase == "reduced_gradient"
    assert first.code != "nonlinear-before-reduction"


@pytest.mark.parametrize(
    ("weights", "name"),
    [
        ((0, 0, 3), "an extreme"),
        ((0, 3, 0), "the median"),
        ((0, 1, 1, 1, 0), "a trimmed mean"),
        ((2, 0, 1), "a combination"),
        ((0.7, 0.3), "a combination"),
        ((0, 0.7, 0.3, 0), "a combination"),
        ((0, 0.5, 0.5, 0), "the median"),
        ((0, 0.7, 0), "a combination"),
    ],
    ids=[
        "extreme",
        "median",
        "trimmed",
        "combination",
        "two-unlike",
        "middle-unlike",
        "middle-of-four",
        "part-of-the-median",
    ],
)
def test_what_weighs_the_ranks_of_elements_is_called_by_its_name(weights, name):
    def weigh(values):
        ranked = np.sort([to_array(value) for value in values], axis=0)
        return np.tensordot(weights, ranked, axes=1).astype(ranked.dtype)

    fault = Fault(reduce=reduce_with(weigh))
    evidence = observe(fault, replicas=len(weights), steps=1, sparse=False)
    (finding,) = judge(evidence).findings
    assert finding.code == "nonlinear-before-reduction"
    assert f"each element is {name} of the replicas' own" in finding.explanation
