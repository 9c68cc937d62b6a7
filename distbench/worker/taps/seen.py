"""What a step showed while it was traced, by replica."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import tensorflow as tf

from distbench.trace import Phase
from distbench.worker.taps.own_gradients import OwnGradients


class Seen:
    """What the replicas of a task were seen to do in the trace of a step.

    Attributes:
        given: The tensors that each replica's step was traced with.
        trained_by: What tapes differentiated by variables of the subject.
        handed: What each replica hands over to be summed, as far as that is known.
        reduced: What each replica's optimizers were given as sums.
        returned: The losses that replicas returned.
        gradients: What tapes gave.
        updated: Optimizers, each with paths of what it was given gradients of.
    """

    def __init__(self) -> None:
        self._targets: dict[int, list[Any]] = {}
        self._results: dict[int, list[Any]] = {}
        self.given: dict[int, list[Any]] = {}
        self.trained_by: dict[int, list[Any]] = {}
        self.handed: dict[int, list[Any]] = {}
        self.reduced: dict[int, list[Any]] = {}
        self.returned: dict[int, list[Any]] = {}
        self.gradients = OwnGradients()
        self.updated: list[tuple[Any, set[str]]] = []

    def forget(self, replica: int) -> None:
        """Drop what a replica did while another graph was traced."""
        kept = (self._targets, self._results, self.trained_by, self.handed)
        for by_replica in (*kept, self.reduced, self.returned):
            by_replica.pop(replica, None)
        self.gradients.forget(replica)

    def add_target(self, replica: int, target: Any, *, trains: bool) -> None:
        """Keep what a tape differentiated.

        Args:
            replica: Whose tape.
            target: What it was.
            trains: Whether by a variable of the subject.
        """
        kept = self._targets.setdefault(replica, [])
        if not any(target is other for other in kept):
            kept.append(target)
        if trains:
            found = filter(tf.is_tensor, tf.nest.flatten(target))
            self.trained_by.setdefault(replica, []).extend(found)

    def add_updated(self, optimizer: Any, paths: set[str]) -> None:
        """Keep what an optimizer is given gradients of, in this trace or another."""
        for other, known in self.updated:
            if other is optimizer:
                known |= paths
                return
        self.updated.append((optimizer, paths))

    def add_result(self, replica: int, result: Any) -> None:
        """Keep what a tape gave, by whatever it differentiated."""
        flat = tf.nest.flatten(result, expand_composites=True)
        found = filter(tf.is_tensor, flat)
        self._results.setdefault(replica, []).extend(found)

    def add_tapped(self, replica: int, phase: Phase, tensors: Iterable[Any]) -> None:
        """Keep the tensors that came by a tap, of gradients and of losses."""
        by_phase: dict[Phase, dict[int, list[Any]]] = {
            "loss": self.returned,
            "local_gradient": self.handed,
            "reduced_gradient": self.reduced,
        }
        if phase in by_phase:
            by_phase[phase].setdefault(replica, []).extend(tensors)

    def list_targets(self, replica: int) -> list[Any]:
        """What the tapes of a replica differentiated, by whatever."""
        return self._targets.get(replica, [])

    def list_differentiated(self) -> dict[int, list[Any]]:
        """By replica, what its tapes differentiated for its training.

        Whoever differentiates by no variable does so by values that are made of them,
        as by weights that are moved up the slope first.
        """
        found = dict(self.trained_by)
        for replica, targets in self._targets.items():
            if replica not in found:
                found[replica] = list(filter(tf.is_tensor, tf.nest.flatten(targets)))
        return found

    def list_results(self) -> list[Any]:
        """All tensors that tapes gave."""
        return list(chain(*self._results.values()))

    def list_gradients(self) -> list[Any]:
        """The tensors that tapes gave for the subject's variables."""
        found = tf.nest.flatten(list(self.gradients.list_all()), expand_composites=True)
        return list(filter(tf.is_tensor, found))
