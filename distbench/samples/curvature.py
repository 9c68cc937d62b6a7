"""The curvature of a loss along random signs, by a tape around a tape."""

from __future__ import annotations

from typing import Any

from distbench.samples.lazy import tf
from distbench.samples.program import Program


class AlongSigns(Program):
    """A program that differentiates its loss twice."""

    def curve(self, batch: Any) -> tuple[Any, list[Any], list[Any]]:
        """A replica's share of the loss, of its gradients, and of its curvature.

        Of each variable the diagonal of the Hessian, in the mean over all signs.
        """
        signs = self.draw_signs(batch)
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                loss = self.reduce_losses(self.compute_losses(batch), batch)
            found = inner.gradient(loss, self.trained())
            gradients = [tf.convert_to_tensor(gradient) for gradient in found]
            parts = zip(gradients, signs, strict=True)
            along = tf.add_n([tf.reduce_sum(gradient * s) for gradient, s in parts])
        curved = outer.gradient(
            along, self.trained(), unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        pairs = zip(signs, curved, strict=True)
        return loss, gradients, [s * tf.convert_to_tensor(c) for s, c in pairs]

    def draw_signs(self, batch: Any) -> list[Any]:
        """The same signs on all replicas and in all steps."""
        del batch
        seeds = [[place, 3] for place, _ in enumerate(self.trained())]
        return [
            tf.sign(tf.random.stateless_normal(v.shape, seed))
            for v, seed in zip(self.trained(), seeds, strict=True)
        ]
