"""Correct models of tf_keras whose layers are built by the step alone, as in `fit`."""

from __future__ import annotations

from distbench.samples.built_late import (
    BuiltLate,
    Centred,
    Networks,
    Normalised,
    Widened,
)
from distbench.unusual.program import unusual


@unusual(clusters=("mirrored:2", "mwms:2", "ps:2+1"))
@BuiltLate
class NetworksWithoutCall(Networks):
    """A GAN has no `call`, as in Keras' own examples: its step calls two networks."""


@unusual(clusters=("mirrored:2", "mwms:2", "ps:2+1"))
@BuiltLate
class CallOfWhatTheStepMakes(Widened):
    """A `call` takes two arguments, which the step makes of the data."""


@unusual()
@BuiltLate
class CallInReplicaAlone(Centred):
    """A `call` averages over all replicas, so that nothing but a replica can run it."""


@unusual()
@BuiltLate
class LayersInAnotherScope(Normalised):
    """Keras names what it builds after synchronised statistics after its model too."""
