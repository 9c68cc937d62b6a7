"""Steps by hand that add up several gradients: what one device is asked of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import distbench
from distbench.worker.taps.intermediates import _Found, _name_tensors

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("MeanOfMicroStepsByHand", "mean-instead-of-sum"),
        ("LastMicroStepSummedByHand", "missing-reduction"),
    ],
)
def test_what_becomes_of_their_sum_is_told(name: str, code: str) -> None:
    verdict = distbench.check(
        f"distbench.faults.by_hand:{name}", "mirrored:2", tier="bounded", steps=2
    )
    (finding,) = verdict.findings
    assert (finding.code, finding.phase) == (code, "variable")


def _make(name: str, kind: str, line: int, *sources: Any) -> _Found:
    """A tensor of an op that a line made, or none, if that is 0."""
    frames = [SimpleNamespace(filename="/home/me/train.py", lineno=line)]
    op = SimpleNamespace(name=name, type=kind, traceback=frames if line else [])
    tensor = SimpleNamespace(name=name, op=op, value_index=0)
    return _Found(tensor, kind, [source.tensor for source in sources])


@pytest.mark.parametrize("more", [0, 2])
def test_what_no_line_makes_goes_by_what_takes_it(more: int) -> None:
    """However much of it a strategy does on one of its replicas."""
    given = _make("given", "Placeholder", 0)
    others = [_make(f"other{n}", "Reshape", 0, given) for n in range(more)]
    flat = _make("flat", "Reshape", 0, given)
    whole = _make("whole", "Reshape", 0, flat)
    taken = _make("taken", "IdentityN", 3, given, whole)
    names = _name_tensors([given, *others, flat, whole, taken], "0")
    assert names["given"] == "0||Placeholder|1:0"
    assert names["taken"] == "0|/home/me/train.py:3|IdentityN|1:0"
    assert names["whole"] == f"{names['taken']}<1"
    assert names["flat"] == f"{names['whole']}<0"
