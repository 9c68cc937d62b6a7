"""How a cluster's parameter servers cut variables into shards, as users write it."""

from __future__ import annotations

import re

from distbench.cluster import ClusterSpec, spell_kinds
from distbench.errors import BadInputError
from distbench.spelling import spell, spell_given


def parse_partitioner(text: str) -> tuple[str, tuple[int, ...]]:
    """Kind and numbers of a partitioner.

    Raises:
        BadInputError: The text is none; the message gives the grammar.
    """
    kind, *numbers = text.split(":")
    counts = {"fixed": (1,), "min": (2,), "max": (1, 2)}.get(kind, ())
    plain = all(re.fullmatch(r"[1-9][0-9]{0,11}", number) for number in numbers)
    if len(numbers) not in counts or not plain:
        raise BadInputError(
            f"Partitioner {text!r} is not known. Expected fixed:SHARDS, "
            "min:BYTES:SHARDS (as many shards of so many bytes as there can be, and "
            "no more), or max:BYTES (as few shards as there can be), with :SHARDS "
            "behind it if wanted."
        )
    return kind, tuple(map(int, numbers))


def check_partitioner(
    text: str, *specs: ClusterSpec, field: str = "partitioner"
) -> None:
    """Raise BadInputError for a partitioner that is none, or has nobody to use it.

    Args:
        text: The partitioner.
        specs: The clusters that are to use it.
        field: What it was given as.
    """
    if not text:
        return
    parse_partitioner(text)
    for spec in specs:
        if not spec.traits.has_servers:
            raise BadInputError(
                f"Cluster '{spec}' has no parameter servers to share variables out "
                "among. Expected a cluster "
                f"{spell_kinds(lambda kind: kind.has_servers)}. "
                f"Received: {spell_given(field, text)}."
            )


def check_restore_partitioner(text: str, restore_from: str) -> None:
    """Raise BadInputError for a partitioner of a cluster that does not save."""
    if text and not restore_from:
        raise BadInputError(
            "A partitioner of what is restored needs a cluster that saves it. Expected "
            f"{spell('restore_from')}. "
            f"Received: {spell_given('restore_partitioner', text)} alone."
        )
    if text:
        check_partitioner(
            text, ClusterSpec.parse(restore_from), field="restore_partitioner"
        )
