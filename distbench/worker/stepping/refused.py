"""Programs that cannot be observed, which are refused as soon as it shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distbench.errors import BadInputError
from distbench.worker.families import find_optimizers
from distbench.worker.process.failures import UnfitError
from distbench.worker.state.components import read_component
from distbench.worker.state.variables import VariableTable
from distbench.worker.stepping.program import Program
from distbench.worker.taps.collect import State


def check_listed(program: Program, variables: Sequence[Any]) -> None:
    """Refuse a program that lists nothing after it was built.

    Raises:
        BadInputError: There is no variable.
    """
    if not variables:
        raise BadInputError(
            f"variables() of '{program.name}' lists no variable after build. "
            "Expected: every variable that the step trains. Make them in "
            "build(strategy)."
        )


def check_optimizers(program: Program, given: Sequence[Any]) -> None:
    """Refuse an optimizer that the first step made: it was not observed.

    Args:
        program: What trains, after its first step was traced.
        given: Its optimizers after it was built.

    Raises:
        BadInputError: They are others now.
    """
    now = list(program.optimizers())
    if list(map(id, now)) == list(map(id, given)):
        return
    # What holds them may be made anew, such as pairs of an optimizer and variables.
    before, after = map(find_optimizers, (given, now))
    if not before or set(map(id, before)) != set(map(id, after)):
        kinds = [f"an object of type '{type(one).__name__}'" for one in now]
        raise BadInputError(
            f"optimizer() of '{program.name}' returns something else after "
            "the first step than after build. Expected: the optimizer that trains. "
            f"Received: {', '.join(kinds) or 'none'}, which is not what it returned "
            "before. Make it once, in build(strategy)."
        )


def check_values(table: VariableTable) -> None:
    """Refuse variables that the step made where their initial values are out of reach.

    Keras 3 makes an optimizer's slots when it is first called. In the step of a replica
    these get no value, and the step fails where it reads them.

    Raises:
        UnfitError: A variable has no value.
    """
    for variable in table.state:
        for component in variable.components:
            # Not asked for its shape alone: the first op of a kind takes milliseconds,
            # and to read them comes next anyway.
            shape = read_component(component).shape
            if not component.shape.is_compatible_with(shape):
                raise UnfitError(
                    f"variable '{variable.info.path}', which the step made, has no "
                    "value: it was made inside of strategy.run. Make it before, under "
                    "the strategy's scope; an optimizer makes its own in "
                    "build(variables)"
                )


def check_shapes(table: VariableTable, state: State) -> None:
    """Refuse variables whose values become larger or smaller from step to step.

    Args:
        table: With the shapes that they had before the first step.
        state: What is there now.

    Raises:
        BadInputError: One has another shape now.
    """
    shapes = {variable.info.path: variable.info.shape for variable in table.state}
    for (path, _), value in state.items():
        if value.shape != shapes[path]:
            raise BadInputError(
                f"Variable '{path}' must keep its shape, since it is compared with "
                f"what it was. Expected: {shapes[path]}. Received: {value.shape}. "
                "Make it as large as it may become, and fill it."
            )
