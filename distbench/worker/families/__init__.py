"""The optimizer families: how each is recognised and where its phases can be seen.

A family is one file that describes itself, and one entry in `_FAMILIES`.
"""

from __future__ import annotations

import inspect
from typing import Any

from distbench.errors import BadInputError
from distbench.worker.families import keras2, keras3, legacy, v1
from distbench.worker.families.controls import Made, make_stock
from distbench.worker.families.family import Family
from distbench.worker.process.intercept import Undo
from distbench.worker.state.ancestry import list_ancestry
from distbench.worker.state.reachable import find_held
from distbench.worker.state.variables import VariableTable
from distbench.worker.taps.board import TapBoard

_FAMILIES = (legacy.FAMILY, keras2.FAMILY, keras3.FAMILY, v1.FAMILY)
_BY_BASE = {base: family for family in _FAMILIES for base in family.bases}

KNOWN_BASES = {base: family.bases[base] for base, family in _BY_BASE.items()}
"""The base classes by their true names, with the names that users know."""


def name_family(candidate: Any) -> str | None:
    """The optimizer base class that an object derives from, or None.

    Recognised by the full name along the class' ancestry, so that no family is
    imported for the sake of a question.
    """
    names = list_ancestry(candidate)
    return next((name for name in names if name in KNOWN_BASES), None)


def find_optimizers(held: Any) -> list[Any]:
    """The optimizers in an object, whatever holds them: see `find_held`."""
    return find_held(held, lambda item: name_family(item) is not None)


def find_family(optimizer: Any) -> Family:
    """The family of an optimizer.

    Raises:
        BadInputError: It is no optimizer.
    """
    base = name_family(optimizer)
    if base is None:
        raise BadInputError(
            f"No optimizer. Expected one of {', '.join(KNOWN_BASES.values())}. "
            f"Received: an object of type '{type(optimizer).__qualname__}'."
        )
    return _BY_BASE[base]


def name_control(optimizer: Any) -> str:
    """The function of `families.controls` that makes the family's plain SGD."""
    inner = getattr(optimizer, "inner_optimizer", None)
    innermost = optimizer if name_family(inner) is None else inner
    return find_family(innermost).controls[name_family(innermost) or ""]


def describe_control(
    optimizer: Any, *, keeps_descent: bool = False
) -> tuple[str, dict[str, float], Made | None, Made | None]:
    """The stock optimizer of an optimizer's family, and the options that it shares.

    Args:
        optimizer: The subject's.
        keeps_descent: Whether the control of an SGD is as it is, without a momentum of
            the bench's: between steps in flight that is another rule.

    Returns:
        Arguments of `distbench.worker.families.controls.make_control`.
    """
    wrap = _describe_wrap(optimizer)
    if wrap is not None:
        optimizer = optimizer.inner_optimizer
    family = find_family(optimizer)
    given = {name: getattr(optimizer, name, None) for name in family.options}
    options = {k: v for k, v in given.items() if isinstance(v, (int, float)) and v}
    stock = _describe_stock(optimizer, keeps_descent=keeps_descent)
    return name_control(optimizer), options, stock, wrap


def _describe_stock(optimizer: Any, *, keeps_descent: bool) -> Made | None:
    """The stock optimizer that an optimizer is, or derives from, unless it is SGD.

    Its own configuration is asked for: what a subclass adds is the user's. One that is
    made of it must have the same: Keras makes a string of a schedule of the user's own,
    which fails only when it is used.
    """
    family = find_family(optimizer)
    kind: Any
    for name, kind in list_ancestry(optimizer).items():
        if name in KNOWN_BASES:
            break
        if _is_stock(kind):
            if kind.__name__ == family.descent and not keeps_descent:
                break
            try:
                settings = _read_settings(family, kind, optimizer)
                made = make_stock(kind, settings)
                if _read_settings(family, kind, made) != settings:
                    break
            except Exception:  # noqa: BLE001 - a subclass may lack what it configures
                break
            return kind, settings
    return None


def _read_settings(family: Family, kind: Any, optimizer: Any) -> dict[str, Any]:
    """What a stock class is configured with, but for the options of its base."""
    config = family.read_config(kind, optimizer)
    return {k: v for k, v in config.items() if k not in family.options}


def _describe_wrap(optimizer: Any) -> Made | None:
    """The framework's own optimizer around another, a loss scale say.

    Its configuration has that of the other in it, which a schedule of the user's own
    may lack; its arguments are attributes as well.
    """
    if name_family(getattr(optimizer, "inner_optimizer", None)) is None:
        return None
    stock: Any = next(c for c in type(optimizer).__mro__ if _is_stock(c))
    names = set(inspect.signature(stock.__init__).parameters)
    if "inner_optimizer" not in names:
        return None  # the user's own, around what is no business of its base class
    names -= {"name", "inner_optimizer"}
    return stock, {k: getattr(optimizer, k) for k in names if hasattr(optimizer, k)}


def _is_stock(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in ("keras", "tf_keras", "tensorflow")


def find_counter(optimizer: Any) -> Any:
    """The variable in which an optimizer counts its steps, or None."""
    return find_family(optimizer).find_counter(optimizer)


def install_taps(optimizer: Any, board: TapBoard, table: VariableTable) -> list[Undo]:
    """Put taps on one optimizer instance; returns what takes them off."""
    return find_family(optimizer).install(optimizer, board, table)
