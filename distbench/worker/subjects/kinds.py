"""Tells the kinds of subjects apart and makes a train program of each."""

from __future__ import annotations

from inspect import getattr_static
from typing import Any, Literal

from distbench.errors import BadInputError
from distbench.scenario import Scenario
from distbench.scenario.choices import MODEL, PIPELINE, PROGRAM, WORKLOADS
from distbench.worker.families import name_family
from distbench.worker.process.failures import blame_subject
from distbench.worker.stepping.program import (
    METHODS,
    Program,
    describe_lacking,
    name_subject,
)
from distbench.worker.subjects.arguments import check_factory
from distbench.worker.subjects.data_methods import describe_values, list_data_methods
from distbench.worker.subjects.fit_steps import name_keras
from distbench.worker.subjects.keras_data import find_data
from distbench.worker.subjects.keras_model import KerasModelProgram
from distbench.worker.subjects.optimizer_program import OptimizerProgram
from distbench.worker.subjects.pipeline_program import PipelineProgram
from distbench.worker.subjects.user_program import UserProgram

Kind = Literal["optimizer", "program", "pipeline", "model"]


def recognise_subject(subject: Any) -> Kind:
    """Tell train programs from callables that make an optimizer or a model.

    A callable that has `data(step)` is called: what it returns tells.

    Raises:
        BadInputError: It is none of them.
    """
    has = [name for name in METHODS if callable(getattr(subject, name, None))]
    if len(has) == len(METHODS):
        feeds = list_data_methods(subject)
        if feeds:
            return "program" if feeds[0] == "data" else "pipeline"
        raise BadInputError(
            f"Train program '{name_subject(subject)}' brings no data. Expected "
            "'data(step)', which returns the global batch of a step, or "
            "'dataset_fn(input_context)', which returns a tf.data.Dataset."
            f"{describe_values(subject)}"
        )
    if name_family(subject) is not None or name_keras(subject) is not None:
        raise BadInputError(
            f"Subject '{name_subject(subject)}' is an optimizer or a model itself. "
            "Expected a callable without arguments that makes it: every process makes "
            "its own, under its strategy. Write a function that returns it, or "
            "'lambda: ...'."
        )
    if has and ("replica_step" in has or not callable(subject)):
        missing = [name for name in METHODS if name not in has]
        # A property is there as well, but may have no value before `build`.
        values = [n for n in missing if getattr_static(subject, n, None) is not None]
        hint = f" Make a method of {', '.join(values)}, without @property."
        name = name_subject(subject)
        raise BadInputError(describe_lacking(name, missing, hint if values else ""))
    if not callable(subject):
        raise BadInputError(
            f"Subject '{name_subject(subject)}' cannot be checked. Expected a callable "
            "without arguments that returns an optimizer or a compiled Keras model, or "
            f"a train program with the methods {', '.join(METHODS)} and data(step). "
            f"Received: an object of type '{type(subject).__name__}'."
        )
    check_factory(subject, name_subject(subject))
    if find_data(subject) is None:
        return "optimizer"
    with blame_subject("build"):
        made = subject()
    return "optimizer" if name_keras(made) is None else "model"


def make_program(subject: Any, scenario: Scenario) -> Program:
    """The program that a scenario trains."""
    if scenario.workload == MODEL:
        return KerasModelProgram(subject, find_data(subject), scenario)
    if scenario.workload == PIPELINE:
        return PipelineProgram(subject)
    if scenario.workload != PROGRAM:
        return OptimizerProgram(subject, scenario)
    if recognise_subject(subject) == "program":
        return UserProgram(subject)
    raise BadInputError(
        f"Subject '{scenario.target}' is an optimizer and needs a workload. "
        f"Expected one of {', '.join(WORKLOADS)}."
    )
