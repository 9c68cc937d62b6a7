"""What is left of the runs that tell whose fault something is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from distbench.checking import controls, flights
from distbench.checking.plan import Planned
from distbench.cluster import ClusterSpec
from distbench.observe import Launch, Observation
from distbench.observe.errand import Errand
from distbench.scenario import Scenario
from distbench.target import TargetRef
from distbench.trace.shelf import ARRAYS

SPEC = ClusterSpec.parse("ps:2+1@cpu")
SCENARIO = Scenario(target="m:f", workload="counting", cluster="ps:2+1", in_flight=2)


@pytest.fixture
def arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a run that nobody runs leaves its arrays."""
    (folder := tmp_path / ARRAYS).mkdir()
    errand = cast(Errand, SimpleNamespace(folder=tmp_path))
    for module in (controls, flights):
        monkeypatch.setattr(module, "observe", lambda *_: Observation(errand=errand))
    return folder


def test_a_control_leaves_no_arrays(tmp_path: Path, arrays: Path) -> None:
    (path := tmp_path / "control").write_text("stock")
    control = SimpleNamespace(path=str(path), describe=lambda: "m:stock")
    launch = cast(Launch, SimpleNamespace(injury=None))
    made = controls.Controls(launch, ("bounded",))
    assert made.run(SCENARIO, SPEC, cast(TargetRef, control)) is not None
    assert not arrays.exists()


def test_a_flight_on_one_worker_leaves_no_arrays(arrays: Path) -> None:
    launch = cast(Launch, SimpleNamespace(injury=None))
    made = flights.Flights(
        cast(TargetRef, None), ("bounded",), launch, cast(controls.Controls, None)
    )
    made._fly(Planned(scenario=SCENARIO, spec=SPEC, optional=False))
    assert not arrays.exists()
