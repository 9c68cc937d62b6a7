"""Steps that solve with a matrix of the own examples, or of the own gradients."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.samples.lazy import tf
from distbench.samples.program import FIRST, HEAD, SECOND, TABLE
from distbench.samples.replicas import all_reduce
from distbench.unusual.solving import (
    SolvesNormalEquations,
    SolvesWithMoments,
    SolvesWithProducts,
)

_LIKE = "deepspeedai/DeepSpeed#490"


@fault("statistics-not-synchronized", "reduced_gradient", (HEAD,), like=_LIKE)
class SolvesWithOwnMoments(SolvesWithMoments):
    """Second moments of the own inputs divide each replica's gradient."""

    def divide(self, gradients, given):
        moments = tf.matmul(given, given, transpose_a=True)
        count = tf.cast(tf.shape(given)[0], moments.dtype)
        *others, head = gradients
        return self.reduce([*others, self.solve(moments / count, head)])


@fault("nonlinear-before-reduction", "variable", (HEAD,), like=_LIKE)
class AveragesOwnSolutions(SolvesNormalEquations):
    """Each replica solves its own equations, and the solutions are averaged."""

    def find_step(self, matrix, right):
        return all_reduce("mean", self.solve(matrix, right))


@fault(
    "nonlinear-before-reduction",
    "reduced_gradient",
    (TABLE, FIRST, SECOND, HEAD),
    like=_LIKE,
)
class SolvesWithProductsOfOwn(SolvesWithProducts):
    """The products of the own rows are added up, and divide the sum."""

    def multiply(self, own, total):
        del total
        products = [self.square(gradient) for gradient in own]
        known = [product for product in products if product is not None]
        summed = iter(all_reduce("sum", known))
        return [None if product is None else next(summed) for product in products]
