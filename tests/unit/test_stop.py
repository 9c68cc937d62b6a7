"""Which value a stop means."""

from __future__ import annotations

import pytest

from distbench.errors import BadInputError
from distbench.stop import Stop, stop_from_json, stop_to_json

STOP = Stop(step=1, phase="slot", replica=2, variable="kernel/m")


@pytest.mark.parametrize("variable", ["kernel/m", "dense/kernel/m"])
def test_a_variable_is_named_by_its_path_or_the_end_of_it(variable: str) -> None:
    assert STOP.fits(1, "slot", variable, 2)


@pytest.mark.parametrize(
    "place",
    [
        (0, "slot", "kernel/m", 2),
        (1, "variable", "kernel/m", 2),
        (1, "slot", "kernel", 2),
        (1, "slot", "other_kernel/m", 2),
        (1, "slot", "kernel/m", 1),
    ],
    ids=["step", "phase", "owner", "part-of-a-name", "replica"],
)
def test_another_value_is_not_meant(place) -> None:
    assert not STOP.fits(*place)


def test_without_a_variable_each_one_is_meant() -> None:
    assert Stop(phase="loss").fits(0, "loss", "", 0)
    assert Stop().fits(0, "local_gradient", "dense/kernel", 0)


def test_a_stop_survives_json() -> None:
    assert stop_from_json(stop_to_json(STOP)) == STOP


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"phase": "gradient"}, "Phase 'gradient'"),
        ({"step": -1}, "step must not be negative"),
        ({"replica": -1}, "replica must not be negative"),
    ],
    ids=["phase", "step", "replica"],
)
def test_what_is_no_point_of_a_run_is_refused(fields, words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        Stop(**fields)
