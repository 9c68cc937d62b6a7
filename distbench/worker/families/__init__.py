"""The optimizer families: how each is recognised and where its phases can be seen.

A family is one file with an `install` function, and one entry in `_FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distbench.errors import BadInputError
from distbench.worker.families import legacy
from distbench.worker.state import VariableTable
from distbench.worker.taps import TapBoard

_FAMILIES: dict[str, Callable[[Any, TapBoard, VariableTable], None]] = dict.fromkeys(
    legacy.BASES, legacy.install
)


def name_family(candidate: Any) -> str | None:
    """The optimizer base class that an object derives from, or None.

    Recognised by the full name along the class' ancestry, so that no family is
    imported for the sake of a question.
    """
    for ancestor in type(candidate).__mro__:
        name = f"{ancestor.__module__}.{ancestor.__qualname__}"
        if name in KNOWN_BASES:
            return name
    return None


KNOWN_BASES = {
    **legacy.BASES,
    "tf_keras.src.optimizers.optimizer.Optimizer": "tf_keras.optimizers.Optimizer",
    "keras.src.optimizers.optimizer.Optimizer": "keras.optimizers.Optimizer",
    "tensorflow.python.training.optimizer.Optimizer": "tf.compat.v1.train.Optimizer",
}


def name_control(optimizer: Any) -> str | None:
    """The stock optimizer of an optimizer's family, if it has one."""
    return legacy.CONTROLS.get(name_family(optimizer) or "")


def install_taps(optimizer: Any, board: TapBoard, table: VariableTable) -> None:
    """Put taps on one optimizer instance.

    Raises:
        BadInputError: Its family cannot be observed yet.
    """
    family = name_family(optimizer)
    if family not in _FAMILIES:
        received = KNOWN_BASES.get(family or "", type(optimizer).__name__)
        expected = ", ".join(KNOWN_BASES[name] for name in _FAMILIES)
        raise BadInputError(
            f"Optimizer of type '{type(optimizer).__qualname__}' cannot be observed. "
            f"Expected a subclass of {expected}. Received: {received}."
        )
    _FAMILIES[family](optimizer, board, table)
