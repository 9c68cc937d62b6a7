"""Steps that are too long, too short or left out, though their gradients are right."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import pytest
from gradient_values import to_array
from planted_case import MOMENTUM
from simulated_rule import Rule
from training_simulator import BIAS, TRAINED, Fault, observe
from wrong_steps import add_state, repeat

from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.fed import Fed
from distbench.trace import Trace


@pytest.mark.parametrize("times", [2, 5, 6])
def test_of_longer_steps_the_learning_rate_is_always_a_cause(times):
    """Which is so for counts that were repeated on one device, and for others."""

    def update(new, old, gradients, run):
        steps = {path: new[path] - old[path] for path in TRAINED}
        return {
            **new,
            **{path: old[path] + s * s.dtype.type(times) for path, s in steps.items()},
        }

    (finding,) = judge(observe(Fault(update=update))).findings
    assert finding.code == "update-repeated"
    assert f"applied {times} times in one step" in finding.explanation
    assert f"or the learning rate is {times} times as large" in finding.explanation


@dataclass(frozen=True, kw_only=True)
class Waiting(Rule):
    """Nothing moves in the first step."""

    counts: bool = True

    def update(self, state, gradients):
        new = super().update(state, gradients)
        waits = {} if state["iterations"] else {k: state[k] for k in gradients}
        return new | waits


def test_a_step_that_moves_nothing_is_no_evidence_against_a_repetition():
    """As the first one of a schedule that begins at 0: repeated, it is still right."""
    twice = add_state(lambda k, v, old, run: 2 * v - old[k] if k in TRAINED else v)
    (finding,) = judge(observe(Fault(update=twice), rule=Waiting(), steps=3)).findings
    assert (finding.code, finding.step) == ("update-repeated", 1)


@dataclass(frozen=True, kw_only=True)
class LooksAhead(Rule):
    """Nesterov's momentum: a step along the new slot and the gradient."""

    name: str = "momentum"
    again: float = 1.0

    def update(self, state, gradients):
        new = super().update(state, gradients)
        for path, value in gradients.items():
            t = state[path].dtype.type
            ahead = t(self.again * self.beta) * new[f"momentum/{path}"]
            new[path] = state[path] - t(self.rate) * (ahead + to_array(value))
        return new


@pytest.mark.parametrize(
    ("again", "code", "words"),
    [
        (2, "momentum-repeated", "takes 2 times"),
        (4, "momentum-repeated", "takes 4 times"),
        (1.5, "hyperparameter-differs", "takes 1.5 times"),
        (0.5, "hyperparameter-differs", "takes 0.5 times"),
    ],
)
def test_a_step_that_takes_its_new_slot_otherwise_is_told(again, code, words):
    """From its first wrong step on, where the slot holds that gradient alone."""

    def update(new, old, gradients, run):
        return replace(run.rule, again=again).update(old, gradients)

    evidence = observe(Fault(update=update), rule=LooksAhead(), steps=3)
    (finding,) = judge(evidence).findings
    assert (finding.code, finding.phase, finding.step) == (code, "variable", 0)
    assert f"{words} what it should of the slot 'momentum/*'" in finding.explanation


def rename_slots(part):
    """Slots by the paths that Keras 3 gives them, in all traces of a run."""

    def rename(path):
        owner = path.removeprefix("momentum/")
        return path if owner == path else f"adam/{owner.replace('/', '_')}_momentum"

    if isinstance(part, Trace):
        values = {
            replace(key, variable=rename(key.variable)): value
            for key, value in part.values.items()
        }
        infos = tuple(replace(i, path=rename(i.path)) for i in part.variables)
        return replace(part, values=values, variables=infos)
    if isinstance(part, tuple):
        return tuple(map(rename_slots, part))
    if isinstance(part, dict):
        return {name: rename_slots(one) for name, one in part.items()}
    if isinstance(part, (Evidence, Fed)):
        names = [field.name for field in fields(part)]
        return replace(part, **{n: rename_slots(getattr(part, n)) for n in names})
    return part


def test_slots_are_found_by_their_variable_whatever_their_paths():
    def update(new, old, gradients, run):
        return replace(run.rule, again=2).update(old, gradients)

    evidence = observe(Fault(update=update), rule=LooksAhead(), steps=3)
    (finding,) = judge(rename_slots(evidence)).findings
    assert (finding.code, finding.phase) == ("momentum-repeated", "variable")
    assert "what it should of the slot 'adam/*_momentum'" in finding.explanation


@pytest.mark.parametrize("rule", [MOMENTUM, LooksAhead()])
def test_another_rate_of_a_momentum_is_no_other_part_of_its_slot(rule):
    def update(new, old, gradients, run):
        return replace(run.rule, rate=0.3).update(old, gradients)

    (finding,) = judge(observe(Fault(update=update), rule=rule, steps=3)).findings
    assert finding.code == "hyperparameter-differs"
    assert "times as long as it should be" in finding.explanation
    assert finding.ratio == pytest.approx(2.4, rel=1e-4)


def test_a_variable_that_stays_as_it_was_is_told_without_a_number():
    """What rounding leaves of its ratio is nothing to look for in divisions."""
    fault = Fault(update=add_state(lambda k, v, old, run: old[k] if k == BIAS else v))
    (finding,) = judge(observe(fault, steps=2)).findings
    assert (finding.code, finding.variables) == ("scale-error", (BIAS,))
    assert finding.ratio == 0
    assert "it stays as it was" in finding.explanation
    assert "among the variables that the optimizer is handed" in finding.explanation
    assert "divisions" not in finding.explanation


@pytest.mark.parametrize(
    ("replicas", "words"), [(1, "Apply once a step"), (2, "Apply once for each copy")]
)
def test_advice_speaks_of_copies_where_there_are_some(replicas, words):
    evidence = observe(Fault(update=repeat(2)), replicas=replicas)
    (finding,) = judge(evidence).findings
    assert finding.code == "update-repeated"
    assert words in finding.explanation
