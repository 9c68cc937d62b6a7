"""A model is built as `fit` builds it: often by nothing but the first trace."""

from __future__ import annotations

from pathlib import Path

import pytest

import distbench
from distbench.verdict import Status, Verdict, describe_verdict

pytestmark = pytest.mark.cluster
LONG = pytest.mark.nightly  # what it shows is shown by a shorter test as well
FILE = Path(__file__).parent / "keras_built_late.py"


def _check(target: str, cluster: str) -> Verdict:
    return distbench.check(target, cluster)


@pytest.mark.parametrize(
    ("target", "cluster"),
    [
        ("distbench.unusual.built_late:NetworksWithoutCall", "mirrored:2"),
        pytest.param(f"{FILE}:make_head", "mirrored:2", marks=LONG),
        pytest.param(f"{FILE}:make_keras3_called", "mirrored:2", marks=LONG),
        pytest.param(
            "distbench.unusual.built_late:CallInReplicaAlone", "mwms:2", marks=LONG
        ),
    ],
)
def test_what_fit_trains_passes(target: str, cluster: str) -> None:
    verdict = _check(target, cluster)
    assert verdict.status is Status.PASS, describe_verdict(verdict)
    assert {"reduced_gradient", "variable"} <= set(verdict.runs[0].references)


def test_layers_in_another_scope_are_followed_through_the_step() -> None:
    """Their gradients are called as their variables are, and lead to these."""
    verdict = _check("distbench.unusual.built_late:LayersInAnotherScope", "mirrored:2")
    (run,) = verdict.runs
    assert run.status is Status.PASS, describe_verdict(verdict)
    assert not run.message


def test_what_raises_as_it_is_built_is_told_with_its_line() -> None:
    verdict = _check(f"{FILE}:make_raises", "mirrored:2")
    (finding,) = verdict.runs[0].findings
    assert (finding.code, finding.phase, finding.replicas) == ("raises", "loss", (0,))
    assert 'raise KeyError("one device alone")' in finding.explanation


@pytest.mark.parametrize(
    "name", ["make_summed", pytest.param("make_summed_keras3", marks=LONG)]
)
def test_what_a_layer_raises_is_told_with_its_own_line(name: str) -> None:
    """Keras raises it anew, where the layer is called."""
    verdict = _check(f"{FILE}:{name}", "mirrored:2")
    (finding,) = verdict.runs[0].findings
    assert (finding.code, finding.phase) == ("raises", "build")
    assert ': return inputs - context.all_reduce("mean"' in finding.explanation
    assert "That is the innermost line of yours" in finding.explanation
    assert "get_replica_context() is None wherever no replica" in finding.explanation


@LONG
def test_what_keras_builds_by_a_call_for_replicas_needs_one() -> None:
    """One device has no call of it: `fit` builds there by its first trace."""
    verdict = _check(f"{FILE}:make_keras3", "mirrored:2")
    (finding,) = verdict.runs[0].findings
    assert (finding.code, finding.phase) == ("raises", "build")
    assert "Please build it yourself before calling fit" in finding.explanation
