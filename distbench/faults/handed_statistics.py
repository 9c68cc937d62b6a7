"""Mistakes with statistics that are handed to an optimizer as gradients."""

from __future__ import annotations

from distbench.faults.fault import fault
from distbench.unusual.handed_statistics import StatisticsAsGradients


@fault(
    "statistics-not-synchronized",
    "reduced_gradient",
    ("variance",),
    like="NVIDIA/TransformerEngine#74",
)
class VarianceWithoutThatOfMeans(StatisticsAsGradients):
    """The mean of the own variances, beside a mean of the own means that is right."""

    def find_square(self, distance):
        return 0.0 * distance


@fault(
    "loss-not-scaled",
    "local_gradient",
    ("mean",),
    like="keras-team/keras#19891",
)
class MovingMeanAddedUp(StatisticsAsGradients):
    """The means of all replicas are added up, beside variances that are right."""

    def weigh_mean(self, mean, share):
        return mean
