"""Variables that cannot be compared are refused by name; of open shapes all is seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from one_run import check_one

import distbench
from distbench.errors import BadInputError
from distbench.verdict import Status

pytestmark = pytest.mark.cluster
_PROGRAMS = Path(__file__).with_name("odd_variables.py")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("KeepsText", "'text' must be of real numbers.*dtype string. Keep it outside"),
        ("IsComplex", "'w' must be of real numbers.*dtype complex64.*tf.complex"),
        ("Grows", r"'open' must keep its shape.*\(3, 2\). Received: \(4, 2\)"),
    ],
)
def test_what_cannot_be_compared_is_refused(name: str, words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        check_one(f"{_PROGRAMS}:{name}")


def test_open_shapes_pass() -> None:
    verdict = distbench.check(f"{_PROGRAMS}:LeavesShapesOpen", "mwms:2", tier="bounded")
    assert verdict.status is Status.PASS, verdict.findings


def test_what_is_wrong_in_a_variable_of_open_shape_is_found() -> None:
    run = check_one(f"{_PROGRAMS}:OpenOfReplicas")
    assert [finding.variable for finding in run.findings] == ["open"]
