"""A GAN of Keras 3: two networks in turn, led by noise of the step."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

_LATENT = 6


class Gan(keras.Model):
    """Trains a critic, and then what it judges; both losses are means."""

    def __init__(self):
        super().__init__()
        self.critic = keras.Sequential(
            [layers.Input((8,)), layers.Dense(4, "leaky_relu"), layers.Dense(1)]
        )
        self.generator = keras.Sequential(
            [layers.Input((_LATENT,)), layers.Dense(4, "leaky_relu"), layers.Dense(8)]
        )
        self.noise = keras.random.SeedGenerator(1)
        self.rules = [keras.optimizers.Adam(1e-3), keras.optimizers.Adam(1e-3)]
        self.measure = keras.losses.BinaryCrossentropy(from_logits=True)
        for rule, part in zip(self.rules, (self.critic, self.generator), strict=True):
            rule.build(part.trainable_weights)
        self.built = True

    def draw(self, count):
        return self.generator(keras.random.normal((count, _LATENT), seed=self.noise))

    def train_step(self, real):
        count = ops.shape(real)[0]
        both = ops.concatenate([self.draw(count), real], axis=0)
        ones, zeros = ops.ones((count, 1)), ops.zeros((count, 1))
        with tf.GradientTape(persistent=True) as tape:
            critical = self.measure(
                ops.concatenate([ones, zeros], axis=0), self.critic(both)
            )
        self.take(self.rules[0], tape, critical, self.critic.trainable_weights)
        with tf.GradientTape(persistent=True) as tape:
            found = self.measure(zeros, self.critic(self.draw(count)))
        self.take(self.rules[1], tape, found, self.generator.trainable_weights)
        return {"critic": critical, "generator": found}

    def take(self, rule, tape, loss, weights):
        rule.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))


class ScaledAgain(Gan):
    """Both losses are divided by the replicas, which Keras' losses are already."""

    def take(self, rule, tape, loss, weights):
        with tape:
            share = loss / tf.distribute.get_strategy().num_replicas_in_sync
        super().take(rule, tape, share, weights)


def data(step):
    return np.random.default_rng(step).uniform(size=(16, 8)).astype("float32")


def make_gan():
    model = Gan()
    model.compile()
    return model


def make_scaled_again():
    model = ScaledAgain()
    model.compile()
    return model
