"""What the rest of the worker knows of an optimizer family."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from distbench.worker.process.intercept import Undo
from distbench.worker.state.variables import VariableTable
from distbench.worker.taps.board import TapBoard

Pairs = list[tuple[Any, Any]]


class HandOver(Protocol):
    """Gives an optimizer its gradients, as a user of the family would."""

    def __call__(self, optimizer: Any, pairs: Pairs, *, aggregate: bool = True) -> None:
        """Call it; `aggregate` says who sums over replicas, it or nobody."""


def _build_late(optimizer: Any, variables: Sequence[Any]) -> None:
    """Leave it to the first step, as most families do."""


def _make_slots(optimizer: Any, variables: Sequence[Any]) -> None:
    optimizer.build(list(variables))


def _get_iterations(optimizer: Any) -> Any:
    # `iterations` creates the counter where it does not exist yet, as a step would.
    return getattr(optimizer, "iterations", None)


def _get_config(kind: Any, optimizer: Any) -> Mapping[str, Any]:
    # Its own class' method: what a subclass adds is not the framework's.
    return kind.get_config(optimizer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One family of optimizers.

    Attributes:
        bases: The base classes by their true names, with the names that users know.
        controls: The stock optimizer of each base, a function of
            `distbench.worker.families.controls`.
        install: Puts taps on an instance; every method still does what it did. Returns
            what takes them off again.
        hand_over: Gives an optimizer the gradients of a workload.
        paths: The aggregation paths that it has.
        build: Makes an optimizer ready for variables, under the strategy's scope, if
            its users have to.
        make_slots: Makes what an optimizer keeps, as its first update would.
        options: Attributes of the base class that change what it computes, as numbers;
            a control takes them from the subject.
        find_counter: The variable in which an optimizer counts its steps, or None.
        descent: The class that follows the gradient and may keep no slot at all.
        read_config: What makes another optimizer of one of its classes.
    """

    bases: Mapping[str, str]
    controls: Mapping[str, str]
    install: Callable[[Any, TapBoard, VariableTable], list[Undo]]
    hand_over: HandOver
    paths: tuple[str, ...]
    options: tuple[str, ...] = ()
    build: Callable[[Any, Sequence[Any]], None] = _build_late
    make_slots: Callable[[Any, Sequence[Any]], None] = _make_slots
    find_counter: Callable[[Any], Any] = _get_iterations
    descent: str = "SGD"
    read_config: Callable[[Any, Any], Mapping[str, Any]] = _get_config
