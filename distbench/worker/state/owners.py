"""Which variable of the model a slot is of: by its optimizer, or else by its name."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from distbench.worker.state.components import is_variable, list_components


class Owners:
    """The model variables that slots may be of.

    Args:
        named: Each with the name that it was made with and the path that it goes by, in
            the order in which the subject lists them.
        optimizers: They have the slots.
    """

    def __init__(
        self, named: Sequence[tuple[Any, str, str]], optimizers: Sequence[Any]
    ) -> None:
        self._paths: dict[str, list[str]] = {}
        keys: dict[str, str] = {}
        for variable, name, path in named:
            self._paths.setdefault(name, []).append(path)
            for part in list_components(variable):
                keys[str(getattr(part, "_unique_id", None))] = path
        self._shared = {id(v) for o in optimizers for v in _list_shared(o)}
        self._known = {
            id(slot): keys[key]
            for optimizer in optimizers
            for key, slot in _list_slots(optimizer, self._shared)
            if key in keys
        }

    def find(self, slot: Any, name: str) -> str:
        """The path of the variable that a slot is of, `""` if it is of none.

        Args:
            slot: The slot.
            name: What it is called.
        """
        if id(slot) in self._shared:
            return ""
        if id(slot) in self._known:
            return self._known[id(slot)]
        # Those that were given no name are all called `Variable`.
        return self._paths.get(_match(name, self._paths), [""])[0]


def _match(name: str, known: Collection[str]) -> str:
    """The longest name of a model variable among the parts of a slot's name.

    Keras 3 makes one part of it: `kernel:0` of a layer gives `layer_kernel_0_momentum`.
    """
    matches = [own for own in known if f"/{own}/" in f"/{name}/"]
    if not matches:
        last = name.rpartition("/")[2]
        matches = [own for own in known if last.startswith(own.replace("/", "_") + "_")]
    return max(matches, key=len, default="")


def _list_shared(optimizer: Any) -> list[Any]:
    """What an optimizer has for all variables: `beta_1` is no slot of one named `beta`.

    OptimizerV2 and the optimizers of TensorFlow 1 have a table of that. Later ones have
    single numbers, each as an attribute.
    """
    tables = [_take(optimizer, name) for name in ("_hyper", "_non_slot_dict")]
    held = [value for table in tables for value in table.values()]
    numbers = [v for v in vars(optimizer).values() if is_variable(v) and _is_number(v)]
    return [*filter(is_variable, held), *numbers]


def _is_number(variable: Any) -> bool:
    return list_components(variable)[0].shape.rank == 0


def _list_slots(optimizer: Any, shared: set[int]) -> Iterator[tuple[str, Any]]:
    """What an optimizer knows of its slots: each with the key of its variable.

    OptimizerV2 has them by variable and kind, and the optimizers of TensorFlow 1 by
    kind and variable. Later ones have a list for each kind, in the order in which they
    number the variables; a list with shared variables in it is none of these.
    """
    for outer, inner in _take(optimizer, "_slots").items():
        if isinstance(inner, Mapping):
            for key, slot in inner.items():
                yield from ((str(outer), slot), (str(key), slot))
    places = _take(optimizer, "_index_dict", "_trainable_variables_indices")
    keys = sorted(places, key=lambda key: places[key])
    for held in vars(optimizer).values():
        is_kind = isinstance(held, list) and len(held) == len(keys)
        if is_kind and shared.isdisjoint(map(id, held)):
            for key, slot in zip(keys, held, strict=True):
                if is_variable(slot):
                    yield str(key), slot


def _take(optimizer: Any, *names: str) -> Mapping[Any, Any]:
    """The first attribute that is there, and is a table."""
    held = vars(optimizer)
    return next((held[n] for n in names if isinstance(held.get(n), Mapping)), {})
