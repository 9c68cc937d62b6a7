"""Mistakes that do to each replica's gradient what is meant for the sum."""

from __future__ import annotations

import numpy as np

from distbench.faults.generated.in_sum import OfSome
from distbench.faults.generated.mistake import Drawn, mistake
from distbench.samples.drawn.problem import measure_rms
from distbench.samples.lazy import tf
from distbench.samples.replicas import count_replicas

_CLIP = "clip-before-reduction"
_NONLINEAR = "nonlinear-before-reduction"
_PHASE = "reduced_gradient"
_ENOUGH = 8
"""Numbers of a variable: fewer could be explained by anything."""


def _can_clip(facts):
    return facts.sends_directions and bool(facts.list_large(4 * facts.replicas))


@mistake(_CLIP, _PHASE, like="tensorflow/tensorflow#33929")
class EachNormClipped:
    """Each replica clips the norm of every variable's gradient."""

    @staticmethod
    def draw(rng, facts):
        if not _can_clip(facts):
            return None
        # Of every variable the longest gradient is cut.
        longest = min(max(facts.norms(name)) for name in facts.names)
        limit = float(f"{longest * rng.uniform(0.3, 0.95):.3g}")
        return Drawn(variables=facts.names, numbers={"limit": limit})

    def transform(self, gradients):
        if count_replicas() == 1:
            return gradients
        return [tf.clip_by_norm(gradient, self.limit) for gradient in gradients]


@mistake(_CLIP, _PHASE, like="LeelaChessZero/lczero-training#162")
class GlobalNormClipped:
    """Each replica clips the global norm of its gradients."""

    @staticmethod
    def draw(rng, facts):
        if not _can_clip(facts):
            return None
        norms = np.linalg.norm([facts.norms(name) for name in facts.names], axis=0)
        limit = float(f"{max(norms) * rng.uniform(0.3, 0.95):.3g}")
        return Drawn(variables=facts.names, numbers={"limit": limit})

    def transform(self, gradients):
        if count_replicas() == 1:
            return gradients
        return tf.clip_by_global_norm(gradients, self.limit)[0]


@mistake(_CLIP, _PHASE, like="tensorflow/tensorflow#25806")
class ElementsClipped(OfSome):
    """Each replica clips the elements of its gradients."""

    @staticmethod
    def draw(rng, facts):
        if not _can_clip(facts):
            return None
        largest = min(
            max(float(np.max(np.abs(term.dense[name]))) for term in facts.terms)
            for name in facts.names
        )
        limit = float(f"{largest * rng.uniform(0.3, 0.9):.3g}")
        numbers = {"limit": limit, "concerned": facts.names}
        return Drawn(variables=facts.names, numbers=numbers)

    def change(self, gradient):
        return tf.clip_by_value(gradient, -self.limit, self.limit)


class OfLarge(OfSome):
    """Changes the gradients of the larger variables."""

    @staticmethod
    def find(facts):
        return facts.list_large(_ENOUGH) if facts.sends_directions else ()


@mistake(_NONLINEAR, _PHASE, like="horovod/horovod#3786")
class SignsSummed(OfLarge):
    """Each replica sends signs: alone, or times a size of its gradient."""

    @staticmethod
    def draw(rng, facts):
        names = OfLarge.find(facts)
        if not names:
            return None
        found = [np.abs(t.dense[name]).ravel() for t in facts.terms for name in names]
        sizes = np.concatenate(found)
        sizes = sizes[sizes > 0]
        # What makes every element smaller would be a clip.
        kinds = ["mean", "largest", "constant"]
        if np.quantile(sizes, 0.2) < 0.5:
            kinds.append("one")
        constant = float(np.median(sizes)) * 10 ** rng.uniform(-0.2, 1.5)
        numbers = {
            "concerned": names,
            "kind": str(rng.choice(kinds)),
            "constant": float(f"{constant:.3g}"),
        }
        return Drawn(variables=names, numbers=numbers)

    def change(self, gradient):
        size = tf.abs(gradient)
        scales = {
            "one": lambda: 1.0,
            "mean": lambda: tf.reduce_mean(size),
            "largest": lambda: tf.reduce_max(size),
            "constant": lambda: self.constant,
        }
        return scales[self.kind]() * tf.sign(gradient)


@mistake(_NONLINEAR, _PHASE, like="deepspeedai/DeepSpeed#490")
class ScaledToOneLength(OfLarge):
    """Each replica scales the gradient of a variable to a length, longer than some."""

    @staticmethod
    def draw(rng, facts):
        names = OfLarge.find(facts)
        if not names:
            return None
        norms = [
            float(np.linalg.norm(term.dense[name]))
            for name in names
            for term in facts.terms
        ]
        # What makes every gradient shorter would be a clip.
        if max(norms) < 1.1 * min(norms):
            return None
        length = float(f"{min(norms) * rng.uniform(1.5, 10):.3g}")
        return Drawn(variables=names, numbers={"concerned": names, "length": length})

    def change(self, gradient):
        return self.length * gradient / tf.norm(gradient)


@mistake(_NONLINEAR, _PHASE, like="horovod/horovod#3786")
class RoundedToLevels(OfLarge):
    """Each replica rounds its gradient to some levels of its largest element."""

    @staticmethod
    def draw(rng, facts):
        names = OfLarge.find(facts)
        if not names:
            return None
        numbers = {"concerned": names, "levels": int(rng.integers(2, 128))}
        return Drawn(variables=names, numbers=numbers)

    def change(self, gradient):
        unit = tf.reduce_max(tf.abs(gradient)) / self.levels
        return tf.round(gradient / unit) * unit


@mistake(_NONLINEAR, _PHASE, like="horovod/horovod#3786")
class LargestSent(OfLarge):
    """Each replica sends its largest elements and forgets the others."""

    @staticmethod
    def draw(rng, facts):
        names = OfLarge.find(facts)
        part = float(rng.uniform(0.2, 0.6))
        # Of a table whose rows were not used there may be nothing left to forget.
        for name in names:
            used = [np.count_nonzero(term.dense[name]) for term in facts.terms]
            if min(used) <= part * facts.sizes([name]) + 2:
                return None
        if not names:
            return None
        return Drawn(variables=names, numbers={"concerned": names, "part": part})

    def change(self, gradient):
        size = tf.reshape(tf.abs(gradient), [-1])
        kept = max(1, int(self.part * int(size.shape[0])))
        limit = tf.reduce_min(tf.math.top_k(size, kept).values)
        return tf.where(tf.abs(gradient) >= limit, gradient, tf.zeros_like(gradient))


@mistake("lower-precision", _PHASE, like="horovod/horovod#3786", warning=True)
class SentInFewerBits:
    """Gradients travel in a narrower dtype."""

    @staticmethod
    def draw(rng, facts):
        if not facts.reduces or facts.clips:
            return None
        kinds = ["bfloat16"]
        totals = [facts.total(name) for name in facts.names]
        largest = max(float(np.max(np.abs(total))) for total in totals)
        if largest < 1e3 and min(measure_rms(total) for total in totals) > 1e-2:
            kinds.append("float16")
        if facts.plan.problem.dtype == "float64":
            kinds.append("float32")
        return Drawn(variables=facts.names, numbers={"kind": str(rng.choice(kinds))})

    def reduce(self, gradients):
        if count_replicas() == 1:
            return super().reduce(gradients)
        narrow = getattr(tf, self.kind)
        sent = [tf.cast(tf.convert_to_tensor(g), narrow) for g in gradients]
        if self.kind == "bfloat16":
            sent = [tf.cast(gradient, self.dtype) for gradient in sent]
        return [tf.cast(total, self.dtype) for total in super().reduce(sent)]
