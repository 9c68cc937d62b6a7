"""Subjects that are refused with a sentence of their own, and such as nearly are."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras


class Program:
    """Right as it is. It has two optimizers, of which it makes others' containers."""

    def build(self, strategy: Any) -> None:
        self.weights = tf.Variable([[0.5]], name="weights")
        self.first = tf_keras.optimizers.legacy.SGD(0.1)
        self.second = tf_keras.optimizers.legacy.Adam(0.1)
        self.by_name = {"first": self.first, "second": self.second}
        self.turns = itertools.cycle([self.first, self.second])

    def replica_step(self, batch: Any) -> Any:
        return tf.reduce_sum(batch[0] * self.weights)

    def variables(self) -> Any:
        return [self.weights]

    def optimizer(self) -> Any:
        return [self.first, self.second]

    def data(self, step: int) -> Any:
        return np.ones((4, 1), np.float32), np.ones((4, 1), np.float32)


class View(Program):
    def optimizer(self):
        return self.by_name.values()


class Pairs(Program):
    def optimizer(self):
        return [(self.first, [self.weights]), (self.second, [])]


class Queue(Program):
    def optimizer(self):
        return deque([self.first, self.second])


class Holder:
    def __init__(self, *held: Any) -> None:
        self.held = held


class HeldAnew(Program):
    def optimizer(self):
        return Holder(self.first, self.second)


class NoOptimizer(Program):
    def optimizer(self):
        return ()


class Group(Program):
    def optimizer(self):
        return {self.first, self.second}


class Yielding(Program):
    def optimizer(self):
        yield self.first


class Cycle(Program):
    def optimizer(self):
        return self.turns


class MadeAnew(Program):
    def optimizer(self):
        return tf_keras.optimizers.legacy.SGD(0.1)


class ObjectMadeAnew(Program):
    def optimizer(self):
        return Holder()


class OneMoreMadeAnew(Program):
    def optimizer(self):
        return [self.first, tf_keras.optimizers.legacy.SGD(0.1)]


class OtherLengths(Program):
    def data(self, step):
        inputs, targets = super().data(step)
        return {"inputs": inputs, "targets": targets[:3]}


class SeveralRows(Program):
    """As FixMatch has, of which 7 without a label go with each that has one."""

    def data(self, step):
        inputs, _ = super().data(step)
        return {"labelled": inputs.repeat(2, 0), "unlabelled": inputs.repeat(14, 0)}


class OneNumber(Program):
    def data(self, step):
        return super().data(step)[0], 3.0


class EmptyReturned(Program):
    def data(self, step):
        return ()


class NothingReturned(Program):
    def data(self, step): ...


class PartOfNothing(Program):
    def data(self, step):
        return (*super().data(step), None)


class YieldsBatches(Program):
    def data(self, step):
        yield super().data(step)


class GivesDataset(Program):
    def data(self, step):
        return tf.data.Dataset.from_tensor_slices(super().data(step))


@dataclass
class Parts:
    inputs: Any
    targets: Any


class GivesParts(Program):
    def data(self, step):
        return Parts(*super().data(step))


class OddObjects(Program):
    def data(self, step):
        return super().data(step)[0], np.array([3, None, 2, 1], dtype=object)


class Dates(Program):
    def data(self, step):
        return {"day": np.array(["2020-02-29"] * 4, dtype="datetime64[D]")}


class Text(Program):
    def data(self, step):
        return super().data(step)[0], np.array(["a", "b", "c", "d"], dtype=object)


class NeedsPath(Program):
    def __init__(self, path):
        self.path = path


class DataAsValue(Program):
    data = (np.ones((4, 1), np.float32),)


class WithoutStep(Program):
    replica_step = None


class Maker:
    """An object of it can be called."""

    def __call__(self):
        return tf_keras.optimizers.legacy.SGD(0.1)

    def make(self, rate):
        return tf_keras.optimizers.legacy.SGD(rate)


def make_model():
    model = tf_keras.Sequential([tf_keras.layers.Dense(1, input_shape=(1,))])
    model.compile("sgd", "mse")
    return model


make_model.data = lambda: (np.ones((4, 1)), np.ones((4, 1)))  # type: ignore[attr-defined]
