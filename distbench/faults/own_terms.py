"""Mistakes in what a term of the own examples' statistics counts."""

from __future__ import annotations

from distbench.faults.fault import WIDE, fault
from distbench.samples.lazy import tf
from distbench.samples.replicas import count_replicas
from distbench.unusual.own_terms import BesideShares as _BesideShares
from distbench.unusual.own_terms import (
    FloorUnderTheMeanOfAll,
    HingeOfTheMeanOfAll,
    SpreadOverFloor,
    ViewsWithoutCorrelation,
)


class _InFull:
    def weigh(self, count):
        del count
        return 1.0


class _Evenly:
    def weigh(self, count):
        del count
        return 1 / count_replicas()


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891", clusters=WIDE)
class SpreadOverFloorInFull(_InFull, SpreadOverFloor):
    """Each replica has a term in full that counts on few of them, from a floor on."""


@fault("mean-of-means", "loss", like="huggingface/transformers#34242", clusters=WIDE)
class SpreadOverFloorEvenly(_Evenly, SpreadOverFloor):
    """A term of the own examples that counts from a floor on is divided by N."""


@fault("loss-not-scaled", "loss", like="keras-team/keras#19891", clusters=WIDE)
class ViewsWithoutCorrelationInFull(_InFull, ViewsWithoutCorrelation):
    """Each replica has the statistics of its own examples in full, in many terms."""


@fault("mean-of-means", "loss", like="huggingface/transformers#34242", clusters=WIDE)
class ViewsWithoutCorrelationEvenly(_Evenly, ViewsWithoutCorrelation):
    """The statistics of the own examples are divided by N, in many terms."""


class _OwnShare:
    def add_up(self, squares):
        return squares

    def count(self):
        return 1


_OWN = "statistics-not-synchronized"
_LIKE = "huggingface/transformers#34242"


@fault(_OWN, "loss", like=_LIKE, clusters=WIDE)
class FloorUnderOwnShare(_OwnShare, FloorUnderTheMeanOfAll):
    """Free bits: each replica has the floor under its own share of the mean."""


@fault(_OWN, "loss", like=_LIKE, clusters=WIDE)
class HingeOfOwnShare(_OwnShare, HingeOfTheMeanOfAll):
    """The hinge for the mean of all is held against each replica's share of it."""


@fault(_OWN, "loss", like=_LIKE, clusters=WIDE)
class SquaresByTheOwnCountAndOne(_InFull, _BesideShares):
    """Beside shares, own squares are divided by one more than the own count."""

    def find_term(self, batch):
        squares = tf.reduce_sum(self.predict(batch) ** 2, axis=1)
        return tf.reduce_sum(squares) / (tf.cast(tf.size(squares), self.dtype) + 1)
