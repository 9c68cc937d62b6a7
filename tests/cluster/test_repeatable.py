"""The same scenario with the same seed gives the same bits; what decides it is told."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import distbench
from distbench.trace import Value
from distbench.trace.files import read_trace
from distbench.verdict import Status, describe_verdict

pytestmark = pytest.mark.cluster


def make_adam():
    import tf_keras

    return tf_keras.optimizers.Adam(0.01)


def run(folder: Path, cluster: str = "mwms:2", **options):
    """The environment and all recorded values of a scenario, as bytes."""
    options = {"workload": "mlp", "tier": "bounded", "steps": 2, **options}
    verdict = distbench.check(make_adam, cluster, keep=folder, **options)
    assert verdict.status is Status.PASS, describe_verdict(verdict)
    found = {
        (place.parent.name, key): read_bytes(value)
        for place in folder.rglob("trace.json")
        for key, value in read_trace(place.parent, "trace").values.items()
    }
    return verdict.environment, found


def read_bytes(value: Value) -> tuple[bytes, ...]:
    parts = (getattr(value, name, None) for name in ("indices", "values"))
    rows = tuple(part.tobytes() for part in parts if part is not None)
    return rows or (value.tobytes(),)


def test_the_same_scenario_gives_the_same_bits(tmp_path: Path) -> None:
    environment, first = run(tmp_path / "first")
    _, again = run(tmp_path / "again")
    assert len(set(first.values())) > 100  # there is something to differ in
    assert first == again
    assert environment["settings"]["intra_op_threads"] == 1
    assert environment["settings"]["op_determinism"] is False


def test_what_breaks_repetition_is_told_and_can_be_pinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_DETERMINISTIC_OPS", "1")
    monkeypatch.setenv("NCCL_PROTO", "Simple")
    pinned, _ = run(tmp_path / "pinned", "one", steps=1)
    assert pinned["settings"]["op_determinism"] is True
    assert pinned["variables"]["TF_DETERMINISTIC_OPS"] == "1"
    assert pinned["variables"]["NCCL_PROTO"] == "Simple"


def _compare(own: list[float], found: list[float]) -> tuple[bool, bool]:
    """Runs in a task: whether a loss, and any value, is the same but for rounding."""
    import numpy as np

    from distbench.trace import TraceKey
    from distbench.worker.one_device.taken_twice import are_alike
    from distbench.worker.state.values import are_near

    key = TraceKey(step=0, phase="local_gradient", variable="kernel")
    first, second = (np.asarray(values, np.float32) for values in (own, found))
    return (
        are_alike({key: first}, {key: second}, "float32"),
        are_near(first, second, "float32"),
    )


@pytest.mark.parametrize(
    ("found", "same"),
    [
        ([1.0, math.inf, math.nan], True),
        ([1.0 + 1e-6, math.inf, math.nan], True),
        ([1.1, math.inf, math.nan], False),
        ([1.0, -math.inf, math.nan], False),
        ([1.0, 2.0, math.nan], False),
        ([1.0, math.inf, 2.0], False),
    ],
)
def test_what_is_not_finite_repeats_itself(found: list[float], same: bool) -> None:
    """Of float16 that overflows as long as a loss scale is too large."""
    results = distbench.run(_compare, "one", args=([1.0, math.inf, math.nan], found))
    assert list(results.values()) == [(same, same)]
