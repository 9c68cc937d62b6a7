"""Correct programs whose step updates the same variables several times."""

from __future__ import annotations

from distbench.unusual.program import unusual
from distbench.unusual.stepping import InTurn


@unusual()
class TwoTurnsOfTheFirst(InTurn):
    """Of two networks the first one, as a critic, takes two turns in each step."""

    def replica_step(self, batch):
        body, optimizer = self.trained()[:-1], self.optimizer()[0]
        loss = self.take_turn(body, optimizer, batch, self.reduce_losses)
        return loss + super().replica_step(batch)
