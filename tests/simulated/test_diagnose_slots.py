"""Slots that are updated again, or take something else of what they are fed with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from evidence_changes import change_evidence
from gradient_values import scale, to_array
from planted_case import MOMENTUM
from simulated_rule import Rule
from swept import swept
from training_simulator import HEAD, KERNEL, TRAINED, Fault, observe
from wrong_steps import add_state, feed_late

from distbench.diagnose.judge import judge
from distbench.trace import GRADIENTS, INITIAL, Trace, Values


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


@pytest.mark.parametrize("factor", [0.5, *swept(3.0)])
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

    evidence = change_evidence(
        evidence,
        observed=flatten(evidence.observed),
        reference=flatten(evidence.reference),
        replays={name: flatten(trace) for name, trace in evidence.fed.replays.items()},
        twins=tuple(map(flatten, evidence.twins)),
    )
    (finding,) = judge(evidence).findings
    assert finding.code == "slot-repeated"
    assert f"momentum/{HEAD}" in finding.variables


def test_a_slot_of_the_last_of_many_updates_has_gradients_too():
    """Each variable may have an optimizer of its own, as in a GAN of many parts."""

    def take_first(new, old, gradients, run):
        path = f"momentum/{HEAD}"
        taken = old[path].dtype.type(run.rule.beta) * old[path] + run.locals[0][HEAD]
        return {**new, path: taken.astype(old[path].dtype)}

    def part(trace):
        calls = {path: number for number, path in enumerate(TRAINED)}
        values = Values(trace.values).rename(
            lambda key: (
                replace(key, call=calls[key.variable])
                if key.phase in GRADIENTS
                else key
            )
        )
        return replace(trace, values=values)

    evidence = observe(Fault(update=take_first), rule=MOMENTUM, replicas=3)
    (finding,) = judge(evidence.change_traces(part)).findings
    assert (finding.code, finding.variable) == (
        "slot-from-local-gradient",
        f"momentum/{HEAD}",
    )


def make_slots_in_first_step(trace: Trace) -> Trace:
    """A trace of a program whose optimizer makes its slots once it is first asked."""
    values = {
        key: value
        for key, value in trace.values.items()
        if key.step != INITIAL or key.phase != "slot"
    }
    return replace(trace, values=values)


def start_at_one(new, old, gradients, run):
    start = {k: v + 1 if k.startswith("momentum/") else v for k, v in old.items()}
    return run.rule.update(start, gradients)


def start_at_zero(new, old, gradients, run):
    return new


@pytest.mark.parametrize(
    ("start", "codes"), [(start_at_one, ["slot-initial"]), (start_at_zero, [])]
)
def test_how_a_slot_that_the_first_step_makes_started_is_told(start, codes) -> None:
    evidence = observe(Fault(update=start), rule=MOMENTUM, steps=1)
    findings = judge(evidence.change_traces(make_slots_in_first_step)).findings
    assert [f.code for f in findings] == codes
    assert all((f.phase, f.step) == ("slot", 0) for f in findings)
    assert all(len(f.variables) == len(TRAINED) for f in findings)


def test_a_slot_that_keeps_the_mean_of_one_step_is_not_said_to_be_repeated():
    """N times an N-th of the gradient, of which the last time alone is kept."""

    def keep_mean(new, old, gradients, run):
        changed = dict(new)
        for path in TRAINED:
            kept = new[f"momentum/{path}"]
            changed[f"momentum/{path}"] = kept / kept.dtype.type(2)
        return changed

    rule = Rule(name="momentum", beta=0.0)
    (finding,) = judge(observe(Fault(update=keep_mean), rule=rule)).findings
    assert finding.phase == "slot"
    assert finding.code != "slot-repeated"


def skip_turns(is_moved: bool) -> Callable[..., Any]:
    """Slots stay, and the variables as well, or these move without them."""

    def update(new: Any, old: Any, gradients: Any, run: Any) -> Any:
        kept = {p: v for p, v in old.items() if p.startswith("momentum/")}
        if not is_moved:
            kept |= {path: old[path] for path in TRAINED}
        return {**new, **kept}

    return update


@pytest.mark.parametrize("is_moved", [True, False])
def test_slots_that_stay_are_not_a_step_late_where_nothing_moves_by_them(
    is_moved: bool,
) -> None:
    rule = Rule(name="momentum", beta=0.0)
    fault = Fault(update=skip_turns(is_moved))
    run = observe(fault, rule=rule, sparse=False, steps=3)
    first = judge(run).findings[0]
    assert (first.code, first.phase) == ("hyperparameter-differs", "slot")
    assert "it was" in first.explanation


def test_slots_that_keep_nothing_are_told_to_be_a_step_late() -> None:
    """From one device's state they stay as they were, and the variables move."""
    rule = Rule(name="momentum", beta=0.0)
    run = observe(Fault(update=feed_late), rule=rule, sparse=False, steps=3)
    (finding,) = judge(run).findings
    assert (finding.code, finding.phase) == ("stale-gradient", "applied_gradient")


@pytest.mark.parametrize("replicas", [2, 3])
def test_slots_that_each_replica_leaves_in_turn_take_the_step_elsewhere(replicas):
    """Every replica is wrong somewhere, and nothing is wrong on all."""
    left = {0: HEAD, 1: KERNEL}

    def leave(new, old, gradients, run):
        paths = [p for r, p in left.items() if r == run.replica]
        kept = [name for path in paths for name in (path, f"momentum/{path}")]
        return {**new, **{name: old[name] for name in kept}}

    evidence = observe(
        Fault(update=leave), rule=Rule(name="momentum"), replicas=replicas, steps=3
    )
    findings = judge(evidence).findings
    assert {f.code for f in findings if f.phase == "slot"} == {"slot-not-synchronized"}
    assert all("other steps" not in finding.explanation for finding in findings)
