"""The state of a subject: finding every variable, naming it, reading and setting it."""

from __future__ import annotations

import contextlib
import functools
import types
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from distbench.errors import BadInputError
from distbench.trace import VariableInfo

_LEAVES = (
    str, bytes, int, float, complex, bool, type(None), np.ndarray, np.generic,
    tf.Tensor, tf.DType, tf.TensorShape, tf.Graph, tf.Operation, tf.distribute.Strategy,
    type, types.ModuleType, types.BuiltinFunctionType,
)  # fmt: skip

_OWN = "distbench.worker."
"""What stands in front of an optimizer's methods knows other optimizers as well."""


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
        self._by_id = {}
        for variable in self.state:
            for stand_in in (variable.container, *variable.components):
                self._by_id[id(stand_in)] = variable
                self._by_id[id(_unwrap_cast(stand_in))] = variable

    def rename(self, paths: Mapping[str, str]) -> None:
        """Give variables other paths, by those that they have."""
        self.replace(
            StateVariable(
                replace(v.info, path=paths.get(v.info.path, v.info.path)),
                v.container,
                v.components,
            )
            for v in self.state
        )

    def find_path(self, variable: Any) -> str:
        """The path of a variable that the subject or the framework passes around.

        Raises:
            BadInputError: The variable is none that the subject listed.
        """
        known = self._by_id.get(id(variable)) or self._by_id.get(
            id(_unwrap_cast(variable))
        )
        if known is None:
            for component in list_components(variable):
                known = known or self._by_id.get(id(component))
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
        return id(variable) in self._by_id

    def make_slices(self, handle: Any, values: Any, indices: Any) -> tf.IndexedSlices:
        """Rows of a gradient, with the number of rows of their variable."""
        shape = tf.constant(handle.shape.as_list(), tf.int64)
        return tf.IndexedSlices(values, indices, shape)


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
    for variable in model_variables:
        is_sharded = isinstance(variable, tf.__internal__.distribute.ShardedVariable)
        parts = list(variable.variables) if is_sharded else [variable]
        for number, part in enumerate(parts):
            name = given_names.get(id(part)) or _name_variable(part)
            if is_sharded and not name.endswith(f"/part_{number}"):
                # The strategy numbers the shards of a variable that has a name alone.
                name = f"{name}/part_{number}"
            _register(part, name, "variable", "", known, names, found)
    paths = [v.info.path for v in found]
    for optimizer in optimizers:
        counter = find_counter(optimizer)
        for variable in list_shards(walk_variables(optimizer)):
            name = _name_variable(variable)
            role = "iterations" if variable is counter else "slot"
            _register(
                variable, name, role, _match_owner(name, paths), known, names, found
            )
    return tuple(found)


def list_unlisted(
    held: Iterable[Any], graph: tf.Graph, known: Iterable[Any]
) -> Iterator[Any]:
    """Variables that a step uses, and that nobody has named.

    What a step counts, say, leads the next one whether it is listed or not.

    Args:
        held: Where to look for them.
        graph: The traced step.
        known: Variables that belong to somebody else.
    """
    used = {id(outer) for outer, _ in graph.captures}
    seen = {id(part) for variable in known for part in list_components(variable)}
    for variable in list_shards(held):
        parts = list_components(variable)
        if not any(id(part) in seen for part in parts) and any(
            id(part.handle) in used for part in parts
        ):
            seen.update(map(id, parts))
            yield variable


def list_shards(variables: Iterable[Any]) -> Iterator[Any]:
    """The variables, those in shards taken apart."""
    for variable in variables:
        is_sharded = isinstance(variable, tf.__internal__.distribute.ShardedVariable)
        yield from variable.variables if is_sharded else [variable]


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
    found.append(
        StateVariable(
            VariableInfo(
                path=path,
                role=role,
                of=owner,
                shape=tuple(first.shape.as_list()),
                dtype=first.dtype.base_dtype.name,
                synchronised=not is_local(variable),
                trainable=bool(getattr(variable, "trainable", False)),
                adds_up=_is_named(variable, "aggregation", "SUM"),
                averages=_is_named(variable, "aggregation", "MEAN"),
            ),
            variable,
            components,
        )
    )


def make_unique(name: str, taken: Collection[str]) -> str:
    """A name, numbered if others have it already."""
    path, number = name, 1
    while path in taken:
        number += 1
        path = f"{name}#{number}"
    return path


def is_local(variable: Any) -> bool:
    """Whether every replica has a value of its own."""
    return _is_named(variable, "synchronization", "ON_READ")


def _is_named(variable: Any, attribute: str, name: str) -> bool:
    """Whether a setting has a name: an enum of TensorFlow's, or a string of Keras'."""
    value = getattr(variable, attribute, None)
    return str(getattr(value, "name", value)).upper() == name


def list_components(variable: Any) -> tuple[Any, ...]:
    """The plain variables behind one that a strategy, Keras or a cache wraps."""
    variable = _unwrap_cast(variable)
    # A distributed variable that is asked for what it lacks reads its copies.
    if type(variable).__module__.startswith("keras.") and hasattr(variable, "_value"):
        return list_components(variable._value)
    if isinstance(variable, tf.distribute.DistributedValues) and hasattr(
        variable, "values"
    ):
        return tuple(_unwrap_cast(part) for part in variable.values)
    for name in ("_v", "_variable"):
        inner = vars(variable).get(name) if hasattr(variable, "__dict__") else None
        if inner is not None and hasattr(inner, "handle"):
            return list_components(inner)
    return (variable,)


def _unwrap_cast(variable: Any) -> Any:
    # tf_keras' AutoCastVariable of mixed precision holds the true one.
    inner = getattr(variable, "__dict__", {}).get("_variable")
    is_cast = type(variable).__name__.startswith("AutoCast")
    return inner if is_cast and inner is not None else variable


def read_component(component: Any) -> npt.NDArray[np.generic]:
    """A plain variable's value, which stays as it is whatever becomes of the variable.

    On the host nothing is copied: a kernel that changes a variable in place copies what
    somebody else holds.
    """
    # What `read_value` adds to the op is for graphs, and costs as much again.
    dtype = component.dtype.base_dtype
    value = tf.raw_ops.ReadVariableOp(resource=component.handle, dtype=dtype)
    # `numpy()` copies, and NumPy itself cannot take a bfloat16 without dimensions.
    return np.asarray(value._numpy())


def write_component(component: Any, value: npt.NDArray[np.generic]) -> None:
    """Set a plain variable, outside of any replica."""
    # What `assign` adds to the op is for graphs, and costs twice as much again.
    given = tf.convert_to_tensor(value)
    if given.dtype != component.dtype.base_dtype:
        given = tf.cast(given, component.dtype.base_dtype)
    tf.raw_ops.AssignVariableOp(resource=component.handle, value=given)


def walk_variables(root: Any, beyond: tuple[type, ...] = ()) -> Iterator[Any]:
    """Every variable that can be reached from an object, breadth first.

    Follows attributes, mappings, sequences, sets, partials, bound methods, closures and
    `tf.function`s; stops at tensors, graphs, strategies, modules and classes. An
    optimizer's own `variables` misses hyperparameters, counters and plain attributes.

    Args:
        root: Where to begin.
        beyond: Kinds of objects that are not looked into.
    """
    seen: set[int] = set()
    queue = deque([root])
    while queue:
        item = queue.popleft()
        if id(item) in seen or isinstance(item, (*_LEAVES, *beyond)):
            continue
        seen.add(id(item))
        if is_variable(item):
            yield item
        else:
            queue.extend(_list_children(item))


def find_held(root: Any, is_wanted: Callable[[Any], bool]) -> list[Any]:
    """Every object of a kind that can be reached from another, itself included."""
    seen: set[int] = set()
    found = []
    queue = deque([root])
    while queue:
        item = queue.popleft()
        if id(item) in seen or isinstance(item, _LEAVES) or is_variable(item):
            continue
        seen.add(id(item))
        if is_wanted(item):
            found.append(item)
        queue.extend(_list_children(item))
    return found


def is_variable(item: Any) -> bool:
    """Whether an object is a variable, of TensorFlow or of Keras."""
    if isinstance(item, (tf.Variable, tf.__internal__.distribute.ShardedVariable)):
        return True
    is_keras = type(item).__module__.startswith("keras.src.backend")
    return is_keras and hasattr(item, "_value") and hasattr(item, "assign")


def _list_children(item: Any) -> list[Any]:
    if type(item).__module__.startswith(_OWN):
        return []
    if isinstance(item, Mapping):
        return [*item.keys(), *item.values()]
    if isinstance(item, (list, tuple, set, frozenset, deque)):
        return list(item)
    if isinstance(item, types.MethodType):
        return [item.__self__, item.__func__]
    if isinstance(item, functools.partial):
        return [item.func, *item.args, *item.keywords.values()]
    children = list(getattr(item, "__dict__", {}).values())
    if isinstance(item, types.FunctionType):
        children += _list_cells(item)
    elif (python_function := _get_plain(item, "python_function")) is not None:
        children.append(python_function)
    return children + _list_slot_values(item)


def _list_cells(function: types.FunctionType) -> list[Any]:
    """What a closure holds; a cell that is not filled yet holds nothing."""
    values = []
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):
            values.append(cell.cell_contents)
    return values


def _list_slot_values(item: Any) -> list[Any]:
    """Attributes of a class with `__slots__`."""
    values = []
    for owner in type(item).__mro__:
        slots = owner.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            values.append(_get_plain(item, name))
    return values


def _get_plain(item: Any, name: str) -> Any:
    """An attribute, or None where asking for it raises."""
    try:
        return getattr(item, name, None)
    except Exception:  # noqa: BLE001  # a user's property may raise anything
        return None


def _name_variable(variable: Any) -> str:
    """A variable's name; that of Keras 3 calls each kernel `kernel`, but has a path."""
    # Asking a variable of a strategy for what it lacks reads it over the replicas.
    is_keras = type(variable).__module__.startswith("keras.")
    return _clean_name(variable.path if is_keras else variable.name)


def _clean_name(name: str) -> str:
    return name.split(":")[0]


def _match_owner(name: str, paths: list[str]) -> str:
    """The longest path of a model variable among the parts of a slot's name.

    Keras 3 makes one part of it: `kernel:0` of a layer gives `layer_kernel_0_momentum`.
    """
    matches = [path for path in paths if f"/{path}/" in f"/{name}/"]
    if not matches:
        last = name.rpartition("/")[2]
        matches = [p for p in paths if last.startswith(p.replace("/", "_") + "_")]
    return max(matches, key=len, default="")
