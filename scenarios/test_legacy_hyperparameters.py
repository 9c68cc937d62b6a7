"""Would catch rates that are set on one worker alone, or that follow one's own data.

https://github.com/huggingface/accelerate/issues/94: in every process, or the copies of
the model go apart; https://github.com/rmchurch/disruptcnn/issues/3: a rate that follows
the loss of one rank.
"""

from __future__ import annotations

import pytest


@pytest.mark.programs("hyperparameters.py", "EveryKind")
def test_numbers_may_be_tensors_functions_and_schedules(check):
    check().raise_for_status()


@pytest.mark.programs("hyperparameters.py", "FunctionOfTheReplicas")
def test_a_function_that_looks_at_the_replicas_is_found(diagnose):
    first = diagnose()[0]
    assert (first.code, first.phase) == ("hyperparameter-differs", "variable")
    assert first.variables == ("kernel",)


@pytest.mark.programs("hyperparameters.py", "Lowered", clusters=["mirrored:2"])
def test_the_rate_is_set_between_steps(check):
    check().raise_for_status()


@pytest.mark.programs(
    "hyperparameters.py", "LoweredByItsOldName", "LoweredInTheStep", "RateOfAllReplicas"
)
def test_numbers_are_assigned(check):
    check().raise_for_status()


@pytest.mark.programs("hyperparameters.py", "ChiefLowers", kinds=["mwms"])
def test_a_rate_set_on_one_worker_is_found(diagnose, replicas):
    first = diagnose()[0]
    assert (first.code, first.phase) == ("slot-not-synchronized", "slot")
    assert (first.step, first.replicas) == (1, tuple(range(1, replicas)))
    assert first.variables[0] == "SGD/learning_rate"


@pytest.mark.programs("hyperparameters.py", "RateOfTheReplica", kinds=["mwms"])
def test_a_rate_that_follows_the_own_examples_is_found(diagnose):
    first = diagnose()[0]
    # "Only the first replica" is the first one of each worker.
    assert (first.code, first.phase) == ("slot-not-synchronized", "slot")
    assert (first.step, first.variables[0]) == (0, "learning_rate")


@pytest.mark.programs(
    "hyperparameters.py",
    "RateOfTheReplica",
    clusters=["mirrored:2"],
    kinds=["mirrored"],
)
def test_a_rate_that_follows_the_first_replica_is_found(diagnose):
    (finding,) = diagnose()
    assert (finding.code, finding.variables) == (
        "hyperparameter-differs",
        ("learning_rate",),
    )
