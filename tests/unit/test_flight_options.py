"""Steps in flight: which options they take, and what a scenario says of them."""

from __future__ import annotations

import pytest

from distbench.errors import BadInputError
from distbench.options import CheckOptions
from distbench.scenario import Scenario


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"cluster": "mwms:2", "in_flight": 2}, "Expected a cluster ps:W"),
        ({"cluster": "ps:1+1", "in_flight": 0}, "in_flight must be 1 or more"),
    ],
    ids=["no-coordinator", "none"],
)
def test_steps_in_flight_need_a_coordinator(changes: dict, match: str) -> None:
    with pytest.raises(BadInputError, match=match):
        Scenario(target="t", **changes)
    cluster = changes["cluster"]
    with pytest.raises(BadInputError, match=match):
        CheckOptions(clusters=(cluster,), in_flight=changes["in_flight"])


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"tiers": ("free",)}, "no tier 'free'"),
        ({"tiers": ("free", "bounded")}, "no tier 'free'"),
        ({"restore_from": "one", "tiers": ("bounded",)}, "start afresh"),
    ],
    ids=["free", "free-too", "restored"],
)
def test_what_steps_in_flight_cannot_have_is_refused(changes: dict, match: str) -> None:
    with pytest.raises(BadInputError, match=match):
        CheckOptions(clusters=("ps:2+1",), in_flight=4, **changes)


def test_the_id_and_the_number_of_steps_count_those_in_flight() -> None:
    scenario = Scenario(target="a.b:P", cluster="ps:2+1", in_flight=8, steps=2)
    assert scenario.id == "P-ps:2+1-8-in-flight"
    assert scenario.scheduled == 16
