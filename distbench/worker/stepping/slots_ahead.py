"""Slots of optimizers that update between two steps, and not in a step.

No step that is traced shows them, and one that is run once more could not start without
them: they are made before the first one, with the values that their update gives them.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from distbench.worker.families import find_family
from distbench.worker.state.components import list_components, list_shards
from distbench.worker.state.reachable import walk_variables


def make_slots_ahead(optimizers: Iterable[Any], variables: Iterable[Any]) -> None:
    """Make the slots of optimizers that have none after a step was traced.

    Args:
        optimizers: The subject's.
        variables: What it lists.
    """
    listed = list(list_shards(variables))
    trained = [variable for variable in listed if variable.trainable]
    known = {id(part) for variable in listed for part in list_components(variable)}
    for optimizer in optimizers:
        own = [
            variable
            for variable in walk_variables(optimizer)
            if len(variable.shape)
            and known.isdisjoint(map(id, list_components(variable)))
        ]
        if not own:
            # Where a rule of the user's minds variables that it is not to update, its
            # own update will make what it needs.
            with suppress(Exception):
                find_family(optimizer).make_slots(optimizer, trained)
