"""Would catch an optimizer that is another one after `get_config` and `from_config`.

https://github.com/tensorflow/tensorflow/pull/42749 trains on with what was saved and
does not arrive at what goes on without.
"""

from __future__ import annotations

import pytest


@pytest.mark.programs("round_trip.py", "Rebuilt")
def test_rebuilt_optimizer_trains_as_the_original(check):
    check().raise_for_status()


@pytest.mark.programs("round_trip.py", "OwnHyperparameterLost")
def test_a_number_that_the_configuration_lacks_is_found(diagnose):
    first = diagnose()[0]
    assert (first.code, first.variables) == ("hyperparameter-differs", ("SGD/shrink",))


@pytest.mark.programs("round_trip.py", "AggregatorLost")
def test_an_aggregator_that_is_not_rebuilt_is_found(diagnose, replicas):
    first = diagnose()[0]
    # The loss is made for a mean that is not taken any more.
    assert (first.code, first.phase) == ("loss-not-scaled", "loss")
    assert first.ratio == pytest.approx(replicas, rel=1e-3)
