"""Causes that faults drawn at random brought to light."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from judged_runs import MEAN
from planted_case import (
    ADAM,
    MOMENTUM,
    Case,
    check_named,
    check_passed,
    run_case,
)
from swept import swept
from training_simulator import (
    HEAD,
    KERNEL,
    TRAINED,
    Fault,
    Rule,
    add_up,
    clip_norm,
    map_values,
    observe,
    reduce_with,
    scale,
    to_array,
)
from wrong_steps import add_state, each, of, round_bf16

from distbench.diagnose.hypotheses.precision import is_representable
from distbench.diagnose.judge import judge
from distbench.trace import WHOLE
from distbench.verdict import Status


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


def test_a_repeated_slot_beside_a_decay_is_no_repeated_update():
    """A step that decays the variable too does not grow as its slot did."""

    def repeat(new, old, gradients, run):
        changed = dict(new)
        for path in TRAINED:
            theta, t = old[path], old[path].dtype.type
            g = to_array(gradients[path]).astype(theta.dtype)
            m = old[f"momentum/{path}"]
            for _ in range(3):
                m = t(run.rule.beta) * m + g
            kept = theta * t(1 - run.rule.rate * run.rule.decay)
            changed[f"momentum/{path}"] = m
            changed[path] = (kept - t(run.rule.rate) * m).astype(theta.dtype)
        return changed

    rule = Rule(name="momentum", beta=0.75, decay=0.3)
    evidence = observe(Fault(update=repeat), rule=rule, replicas=3)
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase) == ("slot-repeated", "slot")
    assert set(finding.variables) == {f"momentum/{path}" for path in TRAINED}


@pytest.mark.parametrize("count", [2, 3])
def test_a_repeated_step_that_decays_is_told_from_another_rate(count):
    def repeat(new, old, gradients, run):
        changed = dict(new)
        for path in TRAINED:
            t = old[path].dtype.type
            value = old[path]
            for _ in range(count):
                value = value * t(1 - run.rule.rate * run.rule.decay)
                value = (value - t(run.rule.rate) * new[f"momentum/{path}"]).astype(t)
            changed[path] = value
        return changed

    rule = Rule(name="momentum", decay=0.3)
    evidence = observe(Fault(update=repeat), rule=rule, steps=3)
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase) == ("update-repeated", "variable")


@pytest.mark.parametrize("copy", [0, 1, 2])
def test_a_replica_that_starts_right_is_not_named_for_another(copy):
    def start(state, r):
        return {**state, KERNEL: state[KERNEL] * 2} if r == copy else state

    (finding,) = judge(observe(Fault(start=start), replicas=3)).findings
    assert finding.code == "initial-value-differs"
    assert (finding.variables, finding.replicas) == ((KERNEL,), (copy,))


def hide_sum(evidence):
    """What is seen of a program that sums and updates by hand."""

    def hide(trace):
        kept = {
            key: value
            for key, value in trace.values.items()
            if key.phase not in ("reduced_gradient", "applied_gradient")
        }
        return replace(trace, values=kept)

    return replace(
        evidence,
        observed=hide(evidence.observed),
        reference=hide(evidence.reference),
        twins=tuple(map(hide, evidence.twins)),
        replays={},
    )


@pytest.mark.parametrize(
    ("reduce", "code", "replicas"),
    [
        (lambda locals_, step: list(locals_), "missing-reduction", (0, 1, 2)),
        (
            lambda locals_, step: [add_up([locals_[0], locals_[2]])] * 3,
            "replica-dropped",
            (1,),
        ),
        (MEAN, "mean-instead-of-sum", (0, 1, 2)),
    ],
    ids=["nobody-sums", "one-is-dropped", "averaged"],
)
def test_a_sum_by_hand_that_was_not_seen_is_told_by_the_step(reduce, code, replicas):
    evidence = hide_sum(observe(Fault(reduce=reduce), replicas=3, shards_known=False))
    first = judge(evidence).findings[0]
    assert (first.code, first.phase) == (code, "variable")
    assert first.replicas == replicas
    assert set(first.variables) == set(TRAINED)


def flatten(gradients):
    return np.concatenate([to_array(gradients[path]).ravel() for path in TRAINED])


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("rule", "phase"),
    [
        (Rule(name="momentum"), "variable"),
        (Rule(name="adam"), "variable"),
        (Rule(statistic=flatten), "slot"),
    ],
    ids=["momentum", "adam", "one-slot-of-all"],
)
def test_a_mean_by_hand_is_told_by_what_the_slots_take(rule, phase):
    evidence = observe(Fault(reduce=MEAN), replicas=3, rule=rule, shards_known=False)
    first = judge(hide_sum(evidence)).findings[0]
    assert (first.code, first.phase) == ("mean-instead-of-sum", phase)
    assert first.confidence > 0.999


@pytest.mark.parametrize(
    ("kept", "code", "words"),
    [
        (1.0, "hyperparameter-differs", "stays as it was"),
        (0.5, "scale-error", "takes nothing of"),
    ],
)
def test_a_slot_that_takes_nothing_is_told_in_words(kept, code, words):
    """A ratio would be what rounding leaves of 0."""

    def leave_out(k, v, old, run):
        return kept * old[k] if k.startswith("momentum/") else v

    rule = Rule(name="momentum", beta=0.5)
    evidence = observe(Fault(update=add_state(leave_out)), rule=rule, steps=3)
    first = judge(evidence).findings[0]
    assert (first.code, first.phase) == (code, "slot")
    assert words in first.explanation
    assert not first.ratio


def test_a_part_of_a_sum_that_was_seen_is_the_rules_own():
    def take_third(k, v, old, run):
        return (v + old[k]) / 3 if k.startswith("momentum/") else v

    fault = Fault(update=add_state(take_third))
    evidence = observe(fault, replicas=3, rule=Rule(name="momentum", beta=0.5))
    first = judge(evidence).findings[0]
    assert (first.code, first.phase) == ("scale-error", "slot")


@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_slots_of_two_powers_that_take_one_factor_have_one_cause(factor):
    """Half of a sum over two replicas is also what they have on the average."""

    def scale_taken(new, old, gradients, run):
        scaled = {path: scale(value, factor) for path, value in gradients.items()}
        return run.rule.update(old, scaled)

    evidence = observe(Fault(update=scale_taken), rule=Rule(name="adam"), steps=3)
    first = judge(evidence).findings[0]
    assert (first.code, first.phase) == ("scale-error", "slot")
    assert len(first.variables) == 2 * len(TRAINED)
    assert first.ratio == pytest.approx(factor, rel=1e-4)


def test_a_sum_by_hand_passes():
    check_passed(judge(hide_sum(observe(replicas=3, shards_known=False))))


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


def test_double_precision_alone_is_no_lower_precision():
    check_passed(judge(observe(dtype="float64", rule=Rule(name="adam"), steps=1)))


@pytest.mark.parametrize(
    ("values", "spare", "expected"),
    [
        ([0.5], 29.0, True),  # one float64 with 29 zeros at its end
        ([0.5], 13.0, False),  # one float32 that is a float16 may be chance
        ([0.5, 0.25], 13.0, True),
        ([0.5, 0.1], 29.0, False),
        ([0.0, 0.0], 29.0, False),
    ],
)
def test_numbers_of_a_narrow_dtype_are_no_chance_if_they_have_enough_zeros(
    values, spare, expected
):
    assert is_representable(np.array(values), "float16", spare) is expected


@pytest.mark.parametrize("seed", [2, 4])
def test_numbers_of_a_grid_are_not_taken_for_rounded_ones(seed):
    """Most are those of a narrow dtype before a replica rounds the others up."""

    def round_up(new, old, gradients, run):
        value = new[KERNEL]
        is_odd = (np.round(value * 256) % 2 == 1) & (np.abs(value) >= 1)
        return {**new, KERNEL: (value + is_odd / 256).astype(np.float32)}

    grid = Rule(constraint=lambda _, v: (np.round(v * 256) / 256).astype(v.dtype))
    evidence = observe(Fault(update=round_up), rule=grid, steps=1, seed=seed)
    (finding,) = judge(evidence).findings
    assert finding.code == "unexplained"


def test_leaving_nothing_out_is_no_cause():
    """Σ of what was observed is what was observed, whatever is wrong with it."""
    local = Fault(
        local=lambda g, r, step: {
            k: map_values(v, lambda a: a**3) for k, v in g.items()
        }
    )
    evidence = observe(local, replicas=2)
    evidence = replace(evidence, shards_known=False)
    first = judge(evidence).findings[0]
    assert "out of the sum" not in first.explanation


def test_no_gradient_at_all_is_no_multiple_of_a_sign():
    evidence = observe(Fault(reduce=each(lambda v: map_values(v, np.zeros_like))))
    first = judge(evidence).findings[0]
    assert first.phase == "reduced_gradient"
    assert first.code != "nonlinear-before-reduction"


def test_a_repeated_slot_of_a_single_number_is_told():
    """One number has no axes to fit along, and is told all the same."""

    def repeat(new, old, gradients, run):
        changed = dict(new)
        for path in TRAINED:
            beta = new[path].dtype.type(run.rule.beta)
            slot = f"momentum/{path}"
            changed[slot] = beta * new[slot] + to_array(gradients[path])
            rate = new[path].dtype.type(run.rule.rate)
            changed[path] = old[path] - rate * changed[slot]
        return changed

    evidence = observe(Fault(update=repeat), rule=MOMENTUM, width=1)
    places = (HEAD, f"momentum/{HEAD}")

    def flatten(trace):
        values = {
            key: value.reshape(()) if key.variable in places else value
            for key, value in trace.values.items()
        }
        return replace(trace, values=values)

    evidence = replace(
        evidence,
        observed=flatten(evidence.observed),
        reference=flatten(evidence.reference),
        replays={name: flatten(trace) for name, trace in evidence.replays.items()},
        twins=tuple(map(flatten, evidence.twins)),
    )
    (finding,) = judge(evidence).findings
    assert finding.code == "slot-repeated"
    assert f"momentum/{HEAD}" in finding.variables


def to_unit(gradients):
    """One step as long as all others, whatever the gradient."""
    return {
        k: scale(v, 1 / np.linalg.norm(to_array(v).astype(np.float32)))
        for k, v in gradients.items()
    }


def narrow(locals_, kept, factor=1.0):
    """What is left of a sum in bfloat16, to unit norms."""

    def add(values):
        total = round_bf16(to_array(values[0]))
        for value in values[1:]:
            total = round_bf16(total + round_bf16(to_array(value)))
        return total

    made = {k: add([g[k] for g in locals_[:kept]]) for k in locals_[0]}
    return [{k: scale(v, factor) for k, v in to_unit(made).items()} for _ in locals_]


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("kept", "factor", "is_right"),
    [(3, 1.0, True), (2, 1.0, False), (3, 1.01, False)],
    ids=["right", "one-is-dropped", "another-norm"],
)
def test_a_narrow_sum_is_told_behind_a_norm_that_divides_it(kept, factor, is_right):
    """One device divides what it rounds as well, by a norm that is another's."""
    fault = Fault(reduce=lambda locals_, step: narrow(locals_, kept, factor))
    judgement = judge(observe(fault, replicas=3, sparse=False, alone=to_unit))
    codes = {finding.code for finding in judgement.findings}
    assert (codes == {"lower-precision"}) is is_right
    assert judgement.status is (Status.PASS if is_right else Status.FAIL)
