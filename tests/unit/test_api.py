"""The Python interface, up to where a check or a run begins."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distbench
from distbench import api
from distbench.errors import BadInputError, ClusterError


class BegunError(Exception):
    """A check would begin."""


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The options of each check that would have begun."""
    found: list[Any] = []

    def begin(target: object, options: Any, *others: object) -> None:
        found.append(options)
        raise BegunError

    monkeypatch.setattr(api, "check_target", begin)
    return found


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("scale-error", ("scale-error",)),
        (["scale-error", "raises"], ("scale-error", "raises")),
        ((), ()),
    ],
    ids=["one", "several", "none"],
)
def test_one_code_is_expected_as_several_are(
    begun: list[Any], given: Any, expected: tuple[str, ...]
) -> None:
    with pytest.raises(BegunError):
        distbench.check("a.b:c", expect=given)
    assert begun[0].expect == expected


@pytest.mark.parametrize(
    ("given", "field", "expected"),
    [
        ({"cluster": ["one", "mwms:2"]}, "clusters", ("one", "mwms:2")),
        ({"path": "user"}, "paths", ("user",)),
        ({"path": ["user", "default"]}, "paths", ("user", "default")),
        ({"workload": "mlp"}, "workloads", ("mlp",)),
        ({"workload": ["mlp", "linear"]}, "workloads", ("mlp", "linear")),
        ({"tier": ("exact", "free")}, "tiers", ("exact", "free")),
        ({"tier": ["exact", "free", "exact"]}, "tiers", ("exact", "free")),
        ({"faults": "kill:worker:1@2"}, "faults", ("kill:worker:1@2",)),
        ({"faults": distbench.Fault.drop(1, step=2)}, "faults", ("drop:replica:1@2",)),
        ({"split": [5, 3]}, "split", (5, 3)),
        ({"keep": "kept"}, "keep", Path("kept")),
        ({"seed": np.int64(3)}, "seed", 3),
        ({"timeout_s": 5}, "timeout_s", 5.0),
    ],
    ids=str,
)
def test_what_is_given_becomes_an_option_of_its_type(
    begun: list[Any], given: dict[str, Any], field: str, expected: object
) -> None:
    with pytest.raises(BegunError):
        distbench.check("a.b:c", **given)
    received = getattr(begun[0], field)
    assert (type(received), received) == (type(expected), expected)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"cluster": None},
            "cluster must be a text or a list of texts",
        ),
        ({"steps": 2.5}, "steps must be a whole number or None. Received: 2.5"),
        ({"steps": True}, "steps must be a whole number or None. Received: True"),
        ({"jit": "off"}, "jit must be True or False or None. Received: 'off'"),
        ({"split": "5,3"}, "split must be a list, each element a whole number"),
        ({"keras": 3}, "keras must be a text or None. Received: 3"),
        ({"timeout_s": "3"}, "timeout_s must be a number or None. Received: '3'"),
        ({"timeout": 3}, "Did you mean 'timeout_s'?"),
        ({"clusters": ("one",)}, "Did you mean 'cluster'?"),
        ({"cluster": 3}, "cluster must be a text or a list of texts. Received: 3"),
        ({"tier": ["exact", 3]}, "tier must be a text or a list of texts. Received: ["),
        ({"cluster": ()}, "cluster must name at least one"),
        ({"in_flight": 8}, "Received: in_flight=8."),
        ({"spares": 3}, "spares must be what distbench.Spares() makes or None. Rec"),
    ],
    ids=str,
)
def test_an_option_of_another_type_or_name_is_refused(
    begun: list[Any], given: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInputError, match=re.escape(message)):
        distbench.check("a.b:c", **given)
    assert not begun


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"function": "os:getcwd"}, "takes a function, and args as a tuple"),
        ({"args": "abc"}, "takes a function, and args as a tuple"),
        ({"cluster": ["one"]}, "cluster must be a text. Received: ['one']"),
        ({"timeout_s": 0}, "timeout_s must be a positive number of seconds"),
        ({"timeout_s": 1e300}, "and less than 9e+09. Received: 1e+300"),
        ({"timeout_s": float("nan")}, "timeout_s must be a positive number"),
        ({"seed": -1}, "seed must be from 0"),
        ({"spares": 3}, "spares must be what distbench.Spares() makes or None. Rec"),
        (
            {"timeout": 0},
            "Option 'timeout' is not known. Expected one of allow_public,",
        ),
        ({"timeout": 0}, "Did you mean 'timeout_s'?"),
        ({"memory_gib": float("inf")}, "memory limit must be a positive number"),
    ],
    ids=str,
)
def test_a_run_refuses_what_it_cannot_take(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=re.escape(message)):
        distbench.run(**{"function": print, "cluster": "one", **given})


def test_a_function_runs_on_no_cpus_where_it_was_to_have_gpus() -> None:
    message = r"'mirrored:4096@gpu' cannot be started: need 4096 GPUs, have \d+\."
    with pytest.raises(ClusterError, match=message):
        distbench.run(print, "mirrored:4096@gpu")
