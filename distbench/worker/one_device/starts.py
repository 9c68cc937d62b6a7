"""The states from which steps on one device begin, and beginning one again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

from distbench.evidence import Tier
from distbench.worker.stepping.session import Session
from distbench.worker.taps.collect import State


class Starts:
    """Where each step of each tier began, for the global batch and each shard.

    Args:
        session: The subject, built under the default strategy.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._whole: dict[Tier, list[State]] = {}
        self._own: dict[Tier, list[tuple[State, ...]]] = {}

    def forget(self, tier: Tier) -> None:
        """Begin a tier anew."""
        self._whole[tier], self._own[tier] = [], []

    def keep(self, tier: Tier, whole: State, own: Sequence[State]) -> None:
        """Keep where the next step of a tier begins.

        Args:
            tier: Which one.
            whole: The state of the global batch.
            own: By replica, what its shard has made of the state that it has for
                itself.
        """
        means = {v.path for v in self._session.variables if v.is_mean_of_copies}
        alone = ({k: v for k, v in state.items() if k[0] not in means} for state in own)
        self._whole[tier].append(self._put_away(whole))
        self._own[tier].append(tuple(map(self._put_away, alone)))

    def list_whole(self, tier: Tier) -> Sequence[State]:
        """By step, the state from which the global batch began."""
        return self._whole[tier]

    def restore_whole(self, tier: Tier, step: int) -> None:
        """Set the state from which the global batch starts a step of a tier."""
        self._session.program.turn_to(tier)
        self._session.restore_state(self._whole[tier][step])

    def restore_shard(
        self, tier: Tier, step: int, replica: int, joint: Collection[str] = ()
    ) -> None:
        """Set the state from which a replica's shard starts a step, alone.

        It is that of the global batch, but for what the replica has for itself: that
        is what its own shard has made of it so far. What trains as the mean of such
        copies has one value, that of the global batch.

        Args:
            tier: Which one.
            step: Its number.
            replica: Whose shard.
            joint: Paths of what starts as the global batch has it all the same.
        """
        found = self._own[tier][step][replica]
        own = {key: value for key, value in found.items() if key[0] not in joint}
        self._session.program.turn_to(tier)
        self._session.restore_state({**self._whole[tier][step], **own})

    def _put_away(self, state: State) -> State:
        """Copy a state into a table that keeps large arrays on disk."""
        kept = self._session.make_values()
        kept.update(state)
        return cast(State, kept)
