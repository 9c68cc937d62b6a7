"""State of the model that a traced step makes of its losses or of its gradients.

No example leads it but by way of these: the lowest loss so far, or a momentum that a
program keeps by hand.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain
from typing import Any

from distbench.worker.state.variables import VariableTable
from distbench.worker.taps.exchange import find_trained, is_made_of, list_made_of
from distbench.worker.taps.seen import Seen

_ADDING = ("Add", "AddV2", "AddN", "Sub", "Neg", "Identity", "Cast", "Mul")
_DIVIDING = ("RealDiv", "DivNoNan")
_MOST = 100
"""Parts of a loss that are looked for: each asks for a walk through the graph."""


def list_state_of_losses(seen: Seen, table: VariableTable) -> tuple[str, ...]:
    """State that is made of what replicas return, or of what their tapes differentiate.

    Or of a part of it, before a loss scale or a penalty. Who takes the errors of
    examples before they are put together takes no loss.
    """
    given = list(chain(*seen.given.values()))
    every = (*seen.list_differentiated().values(), *seen.returned.values())
    losses = list(_list_parts(list(chain(*every)), given))
    return list_made_of(table, losses, [*given, *chain(*seen.reduced.values())])


def list_state_of_gradients(seen: Seen, table: VariableTable) -> tuple[str, ...]:
    """State that is made of what tapes gave for the subject's variables.

    Nothing, if tapes differentiate gradients: what is made of second derivatives, as a
    curvature, is a statistic of the examples.
    """
    given, gradients = list(chain(*seen.given.values())), seen.list_gradients()
    targets = list(chain(*seen.list_differentiated().values()))
    trained = frozenset(find_trained(table))
    if is_made_of(targets, gradients, ends=given, unread=trained):
        return ()
    return list_state_of_derivatives(seen, table)


def list_state_of_derivatives(seen: Seen, table: VariableTable) -> tuple[str, ...]:
    """State that is made of what tapes gave for the subject's variables, of any order.

    A curvature is such, and no moving average of batch statistics is.
    """
    given = list(chain(*seen.given.values()))
    return list_made_of(table, seen.list_gradients(), given)


def _list_parts(losses: Collection[Any], given: Collection[Any]) -> Iterator[Any]:
    """Losses, and the numbers of which they are sums or multiples.

    Of two factors, or numerator and denominator, that both follow from examples one may
    be a count.
    """
    waiting, seen = list(losses), set(map(id, losses))
    for _ in range(_MOST):
        if not waiting:
            return
        tensor = waiting.pop()
        yield tensor
        op = getattr(tensor, "op", None)
        if op is None or op.type not in (*_ADDING, *_DIVIDING):
            continue
        inputs = op.inputs[:1] if op.type in _DIVIDING else op.inputs
        led = [
            part
            for part in inputs
            if part.shape.rank == 0
            and part.dtype.is_floating
            and is_made_of([part], given)
        ]
        if op.type == "Mul" and len(led) > 1:
            continue
        new = [part for part in led if id(part) not in seen]
        seen.update(map(id, new))
        waiting += new
