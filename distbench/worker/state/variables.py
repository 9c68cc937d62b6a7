"""The state of a subject: every variable of it, listed and named."""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from distbench.errors import BadInputError
from distbench.trace import VariableInfo
from distbench.worker.state.components import (
    has_setting,
    is_local,
    is_overwritten,
    list_components,
    list_shards,
    read_component,
    unwrap_cast,
)
from distbench.worker.state.owners import Owners
from distbench.worker.state.reachable import walk_variables


@dataclass(frozen=True, slots=True, eq=False)
class StateVariable:
    """One variable of the subject.

    Attributes:
        info: What the trace says of it.
        container: The variable as the subject holds it.
        components: The plain variables behind it that this task can see: one for each
            replica of the task, or one where all share it.
    """

    info: VariableInfo
    container: Any
    components: tuple[Any, ...]


class VariableTable:
    """Names of the variables, looked up by any object that stands for one."""

    def __init__(self, state: Iterable[StateVariable]) -> None:
        self._by_id: dict[int, StateVariable] = {}
        self.replace(state)

    def replace(self, state: Iterable[StateVariable]) -> None:
        """Take a new list, after more variables were created."""
        self.state = tuple(state)
        self._overwritten = {
            v.info.path for v in self.state if is_overwritten(v.container)
        }
        self._by_id = {}
        for variable in self.state:
            for stand_in in (variable.container, *variable.components):
                self._by_id[id(stand_in)] = variable
                self._by_id[id(unwrap_cast(stand_in))] = variable

    def rename(self, paths: Mapping[str, str]) -> None:
        """Give variables, and the owners of slots, other paths by those they have."""

        def change(info: VariableInfo) -> VariableInfo:
            path, owner = (paths.get(p, p) for p in (info.path, info.of))
            return replace(info, path=path, of=owner)

        self.replace(replace(v, info=change(v.info)) for v in self.state)

    def mark_unlisted(
        self, shown: Iterable[Any], unlisted: Iterable[Any], used: Collection[int]
    ) -> None:
        """Note which variables the subject does not list, and which no step uses.

        Args:
            shown: Variables of the table that metrics show.
            unlisted: Those that nobody has named.
            used: What a step's graph takes in, by identity of handles.
        """
        between = {
            id(variable)
            for variable in unlisted
            if not any(id(p.handle) in used for p in list_components(variable))
        }
        others = {id(variable) for variable in (*shown, *unlisted)}
        if others:
            self.replace(
                replace(
                    v,
                    info=replace(
                        v.info,
                        listed=v.info.listed and id(v.container) not in others,
                        between=id(v.container) in between,
                    ),
                )
                for v in self.state
            )

    def find_path(self, variable: Any) -> str:
        """The path of a variable that the subject or the framework passes around.

        Raises:
            BadInputError: The variable is none that the subject listed.
        """
        known = self._find(variable)
        if known is None:
            raise BadInputError(
                f"The optimizer is given a variable that 'variables()' does not list: "
                f"{getattr(variable, 'name', variable)!r}. Expected one of "
                f"{[v.info.path for v in self.state if v.info.role == 'variable']}. "
                "List every variable that the step trains."
            )
        return known.info.path

    def find_shape(self, path: str) -> tuple[int, ...]:
        """The shape of a variable by its path."""
        return next(v.info.shape for v in self.state if v.info.path == path)

    def has(self, variable: Any) -> bool:
        """Whether an object stands for a variable in the table."""
        return self._find(variable) is not None

    def _find(self, variable: Any) -> StateVariable | None:
        """What an object stands for: it, or what it wraps, however often."""
        for stand_in in (variable, unwrap_cast(variable), *list_components(variable)):
            if known := self._by_id.get(id(stand_in)):
                return known
        return None

    def has_gradient(self, variable: Any) -> bool:
        """Whether what is given for an object is a gradient of a variable in the table.

        Of some it is the next value: see `is_overwritten`.
        """
        return self.has(variable) and not self.is_overwritten(self.find_path(variable))

    def is_overwritten(self, path: str) -> bool:
        """Whether what a tape gives for the variable with a path is its next value."""
        return path in self._overwritten


def list_state(
    model_variables: Iterable[Any],
    optimizers: Iterable[Any] = (),
    ignored: Collection[int] = (),
    find_counter: Callable[[Any], Any] = lambda _: None,
    *,
    given_names: Mapping[int, str] = types.MappingProxyType({}),
) -> tuple[StateVariable, ...]:
    """Name every variable of the model and every one reachable from the optimizers.

    Args:
        model_variables: In the order in which the subject lists them; sharded ones are
            taken apart.
        optimizers: Searched through attributes, containers and closures.
        ignored: Identities of variables that belong to the bench.
        find_counter: Tells in which variable an optimizer counts its steps.
        given_names: What to call model variables, by identity, in place of their names.

    Returns:
        Model variables first, in their order; then slots and counters by discovery.
    """
    known: set[int] = set(ignored)
    names: set[str] = set()
    found: list[StateVariable] = []
    named: list[tuple[Any, str, str]] = []
    for variable in model_variables:
        is_sharded = isinstance(variable, tf.__internal__.distribute.ShardedVariable)
        parts = list(variable.variables) if is_sharded else [variable]
        for number, part in enumerate(parts):
            own = _name_variable(part)
            name = given_names.get(id(part)) or own
            if is_sharded and not name.endswith(f"/part_{number}"):
                # The strategy numbers the shards of a variable that has a name alone.
                name = f"{name}/part_{number}"
            count = len(found)
            _register(part, name, "variable", "", known, names, found)
            named += [(part, own, v.info.path) for v in found[count:]]
    holders = list(optimizers)
    owners = Owners(named, holders)
    for optimizer in holders:
        counter = find_counter(optimizer)
        for variable in list_shards(walk_variables(optimizer)):
            name = _name_variable(variable)
            role = "iterations" if variable is counter else "slot"
            owner = owners.find(variable, name)
            _register(variable, name, role, owner, known, names, found)
    return tuple(found)


def _register(
    variable: Any,
    name: str,
    role: Any,
    owner: str,
    known: set[int],
    names: set[str],
    found: list[StateVariable],
) -> None:
    components = list_components(variable)
    if any(id(component) in known for component in components):
        return
    known.update(id(component) for component in components)
    path = make_unique(name, names)
    names.add(path)
    first = components[0]
    _check_dtype(path, first.dtype.base_dtype)
    found.append(
        StateVariable(
            VariableInfo(
                path=path,
                role=role,
                of=owner,
                shape=_find_shape(first),
                dtype=first.dtype.base_dtype.name,
                synchronised=not is_local(variable),
                trainable=bool(getattr(variable, "trainable", False))
                and not is_overwritten(variable),
                adds_up=has_setting(variable, "aggregation", "SUM"),
                averages=has_setting(variable, "aggregation", "MEAN"),
                takes_first=has_setting(variable, "aggregation", "ONLY_FIRST_REPLICA"),
                listed=role == "variable",
            ),
            variable,
            components,
        )
    )


def _check_dtype(path: str, dtype: tf.DType) -> None:
    """Refuse what is no number, and complex ones: bounds are those of real numbers."""
    if dtype.is_floating or dtype.is_integer or dtype.is_bool:
        return
    advice = "Keep it outside of variables."
    if dtype.is_complex:
        advice = "Keep both parts in variables; tf.complex puts them together."
    raise BadInputError(
        f"Variable '{path}' must be of real numbers, which are what is compared. "
        f"Received: dtype {dtype.name}. {advice}"
    )


def _find_shape(component: Any) -> tuple[int, ...]:
    """That of its value, where a variable leaves its own open."""
    is_open = not component.shape.is_fully_defined()
    shape = read_component(component).shape if is_open else component.shape.as_list()
    return tuple(shape)


def make_unique(name: str, taken: Collection[str]) -> str:
    """A name, numbered if others have it already."""
    path, number = name, 1
    while path in taken:
        number += 1
        path = f"{name}#{number}"
    return path


def _name_variable(variable: Any) -> str:
    """A variable's name; that of Keras 3 calls each kernel `kernel`, but has a path."""
    # Asking a variable of a strategy for what it lacks reads it over the replicas.
    is_keras = type(variable).__module__.startswith("keras.")
    return _clean_name(variable.path if is_keras else variable.name)


def _clean_name(name: str) -> str:
    return name.split(":")[0]
