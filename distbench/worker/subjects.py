"""Tells the kinds of subjects apart and makes a train program of each."""

from __future__ import annotations

from typing import Any, Literal

from distbench.errors import BadInputError
from distbench.scenario import PROGRAM, Scenario
from distbench.worker.optimizer_program import OptimizerProgram
from distbench.worker.program import Program, name_subject
from distbench.worker.user_program import UserProgram
from distbench.worker.workloads import WORKLOADS

Kind = Literal["optimizer", "program"]
_MEMBERS = ("build", "replica_step", "variables", "optimizer")


def recognise_subject(subject: Any) -> Kind:
    """Tell a train program from a callable that makes an optimizer.

    Raises:
        BadInputError: It is neither.
    """
    has = [name for name in _MEMBERS if callable(getattr(subject, name, None))]
    if len(has) == len(_MEMBERS):
        if not any(callable(getattr(subject, n, None)) for n in ("data", "dataset_fn")):
            raise BadInputError(
                f"Train program '{name_subject(subject)}' brings no data. Expected "
                "'data(step)', which returns the global batch of a step."
            )
        return "program"
    if has and not callable(subject):
        missing = [name for name in _MEMBERS if name not in has]
        raise BadInputError(
            f"Train program '{name_subject(subject)}' lacks {', '.join(missing)}. "
            f"Expected the methods {', '.join(_MEMBERS)} and data(step)."
        )
    if not callable(subject):
        raise BadInputError(
            f"Subject '{name_subject(subject)}' cannot be checked. Expected a callable "
            "without arguments that returns an optimizer, or a train program with the "
            f"methods {', '.join(_MEMBERS)} and data(step). Received: an object of "
            f"type '{type(subject).__name__}'."
        )
    return "optimizer"


def make_program(subject: Any, scenario: Scenario) -> Program:
    """The program that a scenario trains."""
    if recognise_subject(subject) == "program":
        return UserProgram(subject)
    if scenario.workload == PROGRAM:
        raise BadInputError(
            f"Subject '{scenario.target}' is an optimizer and needs a workload. "
            f"Expected one of {', '.join(WORKLOADS)}."
        )
    return OptimizerProgram(subject, scenario)
