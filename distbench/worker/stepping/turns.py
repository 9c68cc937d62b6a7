"""Which worker takes a step that is scheduled: each in its turn."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tensorflow as tf

_PATIENCE_S = 2.0
"""So long the next worker's turn is kept for it; another one takes it then."""
_FOUND: weakref.WeakKeyDictionary[Any, Turns] = weakref.WeakKeyDictionary()


class Turns:
    """Hands each step to the worker whose turn it is, where steps go one at a time.

    A coordinator has a thread for each worker, and all of them wait for the same queue:
    which one takes a step hangs on which of them the machine lets run first. A step may
    ask for the number of its worker, and its results would be other ones from run to
    run. What is not scheduled here is taken by whoever is free, and so is a step whose
    worker does not come for it, as it may be dead.

    Args:
        cluster: Of a `ClusterCoordinator`.

    Attributes:
        taken_by: Number of the worker that took the last step.
    """

    def __init__(self, cluster: Any) -> None:
        self.taken_by = 0
        self._workers = len(cluster.workers)
        self._queue = cluster.closure_queue
        self._changed = self._queue._closures_queued_condition
        self._waiting: set[int | None] = set()
        self._due: int | None = None
        self._claimed = False
        self._get = self._queue.get
        self._queue.get = self._take
        # The threads wait inside of what they called before: with something to do they
        # come back from it, and call this.
        for worker in cluster.workers:
            worker.create_resource(_do_nothing)

    @classmethod
    def find(cls, coordinator: tf.distribute.coordinator.ClusterCoordinator) -> Turns:
        """Those of a coordinator, of which a strategy has one."""
        cluster = coordinator._cluster
        if cluster not in _FOUND:
            _FOUND[cluster] = cls(cluster)
        return _FOUND[cluster]

    def schedule(
        self,
        number: int,
        schedule: Callable[..., Any],
        function: Any,
        args: Sequence[Any],
    ) -> None:
        """Schedule a step on the worker whose turn it is.

        Args:
            number: Of the step: the workers take turns by it.
            schedule: That of the coordinator.
            function: What a worker runs.
            args: What it takes.
        """
        due = number % self._workers
        with self._changed:
            is_there = self._changed.wait_for(
                lambda: due in self._waiting, timeout=_PATIENCE_S
            )
            self._due = due if is_there else None
        schedule(function, args=tuple(args))
        with self._changed:
            # The coordinator wakes one thread, whoever that is.
            self._changed.notify_all()

    def _take(self, timeout: float | None = None, tag: int | None = None) -> Any:
        """What the thread of a worker, whose number is the tag, asks for more to do."""
        with self._changed:
            self._waiting.add(tag)
            self._changed.notify_all()
            has_work = self._changed.wait_for(partial(self._has_work, tag), timeout)
            self._waiting.discard(tag)
            # Between the look and the grasp others would see the same, and wait for
            # what comes next inside of the coordinator's own call.
            claims = has_work and not self._has_own_work(tag)
            self._claimed |= claims
        closure = self._get(timeout=timeout, tag=tag) if has_work else None
        with self._changed:
            if claims:
                self._claimed = False
                self._changed.notify_all()
            if closure is not None and closure.tag is None and tag is not None:
                self.taken_by = tag
                # Given back, it is for whoever is free.
                self._due = None
        return closure

    def _has_work(self, tag: int | None) -> bool:
        is_free = not (self._claimed or self._queue._queue.empty())
        return self._has_own_work(tag) or (is_free and self._due in (None, tag))

    def _has_own_work(self, tag: int | None) -> bool:
        """Whether something is for this worker alone, or all is over."""
        queue = self._queue
        is_over = not queue._should_process_closures
        return is_over or not queue._tagged_queue[tag].empty()


def _do_nothing() -> tf.Tensor:
    return tf.constant(0)
