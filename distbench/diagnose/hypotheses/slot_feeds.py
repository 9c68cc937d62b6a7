"""What a slot may take in place of the reduced gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from distbench.diagnose.clues.context import Context
from distbench.diagnose.hypotheses.by_hand import find_own, find_sum
from distbench.diagnose.hypotheses.whole_updates import Find, is_whole
from distbench.trace.numbers import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """What a slot may follow from.

    Attributes:
        words: Says what.
        make: Makes it of the replicas' own gradients, for a replica.
        powers: The powers that it may be taken in.
        find: What one device leaves where the whole update takes it; None where none
            can, as it is no gradient.
    """

    words: str
    make: Callable[[tuple[Array, ...], int], Array]
    powers: tuple[int, ...] = (1, 2)
    find: Callable[[Context], Find | None] | None = None

    def is_for_slots_alone(self, context: Context) -> bool:
        """Whether it is known that no variable took it, if the wrong slots did."""
        if self.find is None:
            return True
        led = self.find(context)
        return led is not None and is_whole(context, led) is False


def list_feeds(replicas: int) -> Iterator[Feed]:
    """What a slot may take, as it is or squared; each replica's own gradient first.

    An optimizer may keep both: a slot of each kind is fed by its own power.
    """
    yield Feed(
        words="the replica's own gradient, not from the reduced one",
        make=lambda terms, r: terms[r],
        find=find_own,
    )
    yield Feed(
        words="the replica's own gradient times a power of N",
        make=lambda terms, r: len(terms) * terms[r],
        find=lambda context: find_own(context, context.replicas),
    )
    for one in range(min(replicas, 8)):
        yield Feed(
            words=f"the gradient of replica {one} on all replicas",
            make=lambda terms, _, k=one: terms[k],  # type: ignore[misc]
            find=lambda context, k=one: find_sum(context, (k,)),  # type: ignore[misc]
        )
    yield Feed(
        words="the mean of the replicas' squared gradients, not from the square of "
        "their sum",
        make=lambda terms, _: np.sqrt(np.mean([t**2 for t in terms], axis=0)),
        powers=(2,),
    )
    yield Feed(
        words="the sum of the replicas' squared gradients, not from the square of "
        "their sum",
        make=lambda terms, _: np.sqrt(np.sum([t**2 for t in terms], axis=0)),
        powers=(2,),
    )


def make_part(kept: tuple[int, ...], words: str) -> Feed:
    """The sum of some replicas' gradients alone."""
    return Feed(
        words=words,
        make=lambda terms, _: np.asarray(np.sum([terms[r] for r in kept], axis=0)),
        find=lambda context: find_sum(context, kept),
    )
