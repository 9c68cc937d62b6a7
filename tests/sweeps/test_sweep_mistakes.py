"""Mistakes that programs of others showed, which had no name at first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gradient_values import add_up, add_values, map_values, to_array
from simulated_rule import Rule
from training_simulator import TABLE, TRAINED, Fault, observe

from distbench.diagnose.judge import judge


def test_a_slot_that_follows_from_a_wrong_one_is_folded_into_it():
    """m of Adam normalised by v before it is kept: v is fed wrongly, m follows."""

    def update(new, old, gradients, run):
        changed = dict(new)
        for path in TRAINED:
            t = old[path].dtype.type
            terms = [to_array(g[path]).astype(t) for g in run.locals]
            squares = sum(term * term for term in terms)
            v = t(0.9) * old[f"v/{path}"] + t(0.1) * squares
            g = to_array(gradients[path]).astype(t)
            right = t(0.9) * old[f"v/{path}"] + t(0.1) * g * g
            ratio = np.sqrt(right + t(1e-3)) / np.sqrt(v + t(1e-3))
            changed[f"v/{path}"] = v
            changed[f"m/{path}"] = new[f"m/{path}"] * ratio.astype(t)
        return changed

    evidence = observe(Fault(update=update), rule=Rule(name="adam"), replicas=3)
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase) == ("slot-from-local-gradient", "slot")
    assert set(finding.variables) == {f"v/{path}" for path in TRAINED}


def _rename_slots(evidence):
    """The same with slots whose names do not tell whose they are."""
    numbers = {
        info.path: f"state{number}"
        for number, info in enumerate(evidence.observed.variables)
        if info.role == "slot"
    }

    def rename(trace):
        return replace(
            trace,
            variables=tuple(
                replace(info, path=numbers.get(info.path, info.path), of="")
                for info in trace.variables
            ),
            values={
                replace(key, variable=numbers.get(key.variable, key.variable)): value
                for key, value in trace.values.items()
            },
        )

    return evidence.change_traces(rename), numbers


def test_whose_slot_it_is_is_told_without_names():
    """Two variables of one shape: numbers tell them apart."""

    def update(new, old, gradients, run):
        changed = dict(new)
        for path in TRAINED:
            local = to_array(run.locals[0][path]).astype(old[path].dtype)
            changed[f"m/{path}"] = new[f"m/{path}"] + np.float32(0.25) * (
                local - to_array(gradients[path])
            )
        return changed

    rule = Rule(name="adam")
    evidence, numbers = _rename_slots(observe(Fault(update=update), rule=rule))
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase) == ("slot-from-local-gradient", "slot")
    assert set(finding.variables) == {numbers[f"m/{path}"] for path in TRAINED}


def test_a_schedule_that_differs_is_told_from_another_rate():
    def update(new, old, gradients, run):
        length = np.float32(1 - 0.2 * run.step)
        return {
            k: old[k] + length * (v - old[k]) if k in TRAINED else v
            for k, v in new.items()
        }

    for name in ("sgd", "adam"):
        evidence = observe(Fault(update=update), rule=Rule(name=name), steps=4)
        (finding,) = judge(evidence).findings
        assert (finding.code, finding.step) == ("hyperparameter-differs", 1)


def test_a_rule_whose_numbers_follow_a_schedule_is_told():
    def update(new, old, gradients, run):
        return replace(run.rule, beta=0.5 - 0.125 * run.step).update(old, gradients)

    rule = Rule(name="momentum", beta=0.5)
    evidence = observe(Fault(update=update), rule=rule, steps=4)
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase) == ("hyperparameter-differs", "slot")


def _vote(locals_, step):
    votes = {
        path: np.sign(sum(np.sign(to_array(g[path])) for g in locals_))
        for path in locals_[0]
    }
    return [{path: v.astype(np.float32) for path, v in votes.items()} for _ in locals_]


def _keep_own_indices(locals_, step):
    """Values by position, in the order of first rows, under each replica's rows."""
    found = []
    for own in locals_:
        reduced = {path: add_values([g[path] for g in locals_]) for path in own}
        parts = []
        for value in (g[TABLE] for g in locals_):
            _, first = np.unique(value.indices, return_index=True)
            rows = value.indices[np.sort(first)]
            parts.append((rows, to_array(value)[rows]))
        longest = max(len(rows) for rows, _ in parts)
        total = sum(
            np.pad(values, [(0, longest - len(values)), (0, 0)]) for _, values in parts
        )
        rows = next(
            rows
            for (rows, _), g in zip(parts, locals_, strict=True)
            if g[TABLE] is own[TABLE]
        )
        padded = np.concatenate([rows, np.zeros(longest - len(rows), np.int64)])
        reduced[TABLE] = replace(own[TABLE], indices=padded, values=total)
        found.append(reduced)
    return found


def _apply_to_each(new, old, gradients, run):
    """Momentum once for each replica's gradient."""
    changed = dict(new)
    for path in TRAINED:
        m = old[f"momentum/{path}"]
        for local in run.locals:
            m = np.float32(run.rule.beta) * m + to_array(local[path])
        changed[f"momentum/{path}"] = m.astype(np.float32)
    return changed


def _apply_shares(new, old, gradients, run):
    """The same with an N-th of the gradient each time."""
    changed = dict(new)
    for path in TRAINED:
        m = old[f"momentum/{path}"]
        for _ in run.locals:
            share = to_array(gradients[path]) / np.float32(len(run.locals))
            m = np.float32(run.rule.beta) * m + share
        changed[f"momentum/{path}"] = m.astype(np.float32)
    return changed


def _add_own_noise(gradients, replica, step):
    rng = np.random.default_rng((replica, step))
    return {
        path: map_values(
            to_array(value),
            lambda a: a + 0.01 * rng.normal(size=a.shape) * (replica > 0),
        )
        for path, value in gradients.items()
    }


def _send(function, undo):
    def reduce(locals_, step):
        total = {
            path: undo(sum(function(to_array(g[path])) for g in locals_))
            for path in locals_[0]
        }
        return [
            {path: v.astype(np.float32) for path, v in total.items()} for _ in locals_
        ]

    return reduce


def _add_noise(locals_, step):
    """Noise of one spread on every replica, before the sum."""
    rng = np.random.default_rng(step + 5)
    total = {
        path: sum(
            to_array(g[path]) + 0.1 * rng.normal(size=to_array(g[path]).shape)
            for g in locals_
        )
        for path in locals_[0]
    }
    return [{path: v.astype(np.float32) for path, v in total.items()} for _ in locals_]


def _cut_by_name(locals_, step):
    """One buffer in the order of the names, cut in that of the variables."""
    total = {path: to_array(v) for path, v in add_up(locals_).items()}
    buffer = np.concatenate([total[path].ravel() for path in sorted(TRAINED)])
    cut, start = {}, 0
    for path in TRAINED:
        size = total[path].size
        cut[path] = buffer[start : start + size].reshape(total[path].shape)
        start += size
    return [cut for _ in locals_]


@pytest.mark.parametrize(
    ("fault", "setup", "code", "phase"),
    [
        (Fault(reduce=_cut_by_name), {"sparse": False}, "wrong-pairing", None),
        (
            Fault(
                reduce=_send(
                    lambda x: np.sign(x) * np.sqrt(np.abs(x)),
                    lambda x: np.sign(x) * x**2,
                )
            ),
            {"replicas": 3},
            "nonlinear-before-reduction",
            "reduced_gradient",
        ),
        (
            Fault(reduce=_send(lambda x: np.tanh(x) / 2, lambda x: x)),
            {"replicas": 2},
            "nonlinear-before-reduction",
            "reduced_gradient",
        ),
        (
            Fault(reduce=_add_noise),
            {"sparse": False, "width": 3, "draws": ("noise.py:3",)},
            "nonlinear-before-reduction",
            "reduced_gradient",
        ),
        (Fault(reduce=_vote), {}, "nonlinear-before-reduction", "reduced_gradient"),
        (Fault(reduce=_vote), {"replicas": 3}, "nonlinear-before-reduction", None),
        (Fault(reduce=_keep_own_indices), {}, "sparse-rows", "reduced_gradient"),
        (Fault(update=_apply_to_each), {"replicas": 3}, "slot-repeated", "slot"),
        (Fault(update=_apply_shares), {"replicas": 2}, "slot-repeated", "slot"),
        (
            Fault(transform=_add_own_noise),
            {"replicas": 3},
            "replicas-diverged",
            "applied_gradient",
        ),
    ],
    ids=[
        "cuts",
        "square-roots",
        "tanh",
        "noise",
        "vote",
        "vote-of-3",
        "own-indices",
        "each",
        "shares",
        "own-noise",
    ],
)
def test_a_mistake_of_a_user_is_named(fault, setup, code, phase):
    rule = Rule(name="momentum", beta=0.75)
    evidence = observe(fault, rule=rule, steps=3, **setup)
    findings = judge(evidence).findings
    assert {finding.code for finding in findings} == {code}
    assert phase is None or {finding.phase for finding in findings} == {phase}
