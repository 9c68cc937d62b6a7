"""Whether what each replica hands to its collectives is finite.

A sum with NaN in it does not tell whose addend had one. What tapes give is recorded;
what a step makes of it before the sum is not, by whatever way it gets there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute.cross_device_utils import CollectiveReplicaLauncher

from distbench.worker.process.intercept import hide_from_autograph
from distbench.worker.taps.sinks import create_sink, keep_from_xla, take_out

_METHODS = ("all_reduce", "_all_gather")


class Spoilt:
    """Stands before the collectives of this task's replicas while steps are traced.

    Args:
        devices: Those of the replicas, in their order.
        first_replica: Global number of the first one.
    """

    def __init__(self, devices: Sequence[str], first_replica: int) -> None:
        self._replicas = {
            tf.DeviceSpec.from_string(name).device_index: first_replica + place
            for place, name in enumerate(devices)
        }
        self._sinks: list[tuple[int, Any]] = []

    def watch(self) -> None:
        """Look at what collectives are given from now on; never undone."""
        for name in _METHODS:
            self._watch(name)

    def take(self) -> frozenset[int]:
        """Replicas that handed Inf or NaN to a collective of the last step."""
        found = [(replica, take_out([sink])) for replica, sink in self._sinks]
        return frozenset(
            replica for replica, finite in found if finite and not finite[0].all()
        )

    @property
    def variables(self) -> set[int]:
        """Identities of its own variables, which are no state of the subject."""
        return {id(sink) for _, sink in self._sinks}

    def _watch(self, name: str) -> None:
        original = getattr(CollectiveReplicaLauncher, name)

        def launch(launcher: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if not tf.executing_eagerly() and tensor.dtype.is_floating:
                self._look_at(launcher._device, tensor)
            return original(launcher, tensor, *args, **kwargs)

        hide_from_autograph(launch)
        setattr(CollectiveReplicaLauncher, name, launch)

    def _look_at(self, device: str, tensor: Any) -> None:
        place = tf.DeviceSpec.from_string(device)
        replica = self._replicas.get(place.device_index)
        if replica is None:
            return
        with tf.device(device), keep_from_xla():
            finite = tf.reduce_all(tf.math.is_finite(tensor))
            sink = create_sink(finite.dtype, "/device:CPU:0")
            self._sinks.append((replica, sink))
            sink.assign(finite, read_value=False)
