"""What `scripts/soak` draws, and the arithmetic of what it counts."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from imported_scripts import share_scripts
from tallied import make_comparison
from training_simulator import observe

from distbench.cluster import ClusterSpec
from distbench.diagnose.judge import judge
from distbench.errors import ClusterError
from distbench.scenario.choices import DTYPES
from distbench.unusual import UNUSUAL

ROOT = Path(__file__).parents[2]
NAMES = ("measured", "tally", "own_optimizers", "soak_draws", "soak_counts", "soak")


scripts = share_scripts(*NAMES)


def test_quantiles_are_right_to_a_bin(scripts: Any) -> None:
    tally = scripts["tally"].Tally()
    for k in range(1, 1001):
        tally.add(make_comparison(k / 1000))
    for share in (0.5, 0.9, 0.99):
        assert tally.find_quantile(share) == pytest.approx(share, rel=0.024)
    assert tally.find_quantile(1.0) == tally.largest == 1.0


def test_equal_bits_count_as_no_error(scripts: Any) -> None:
    tally = scripts["tally"].Tally()
    for quotient in (0.0, 0.0, 0.0, 0.5):
        tally.add(make_comparison(quotient))
    figures = tally.to_json()
    assert (figures["compared"], figures["equal"]) == (4, 3)
    assert figures["median"] == 0.0
    assert figures["largest"] == 0.5


def test_a_value_outside_of_its_bound_is_counted_apart(scripts: Any) -> None:
    tally = scripts["tally"].Tally()
    tally.add(make_comparison(math.inf))
    tally.add(make_comparison(0.5))
    assert tally.to_json()["wrong"] == 1
    assert tally.largest == 0.5
    json.dumps(tally.to_json(), allow_nan=False)


def test_a_bound_that_is_never_used_is_loose(scripts: Any) -> None:
    bitwise, loose = scripts["tally"].Tally(), scripts["tally"].Tally()
    bitwise.add(make_comparison(0.0, bound=0.0))
    loose.add(make_comparison(1e-4))
    assert loose.loose
    assert not bitwise.loose


@pytest.mark.parametrize(
    ("events", "trials", "limit"),
    [
        # R: binom.test(k, n, alternative = "less")$conf.int[2]
        (0, 10, 0.2588656),
        (1, 10, 0.3941633),
        (5, 100, 0.1022534),
        (10, 10, 1.0),
    ],
)
def test_the_limit_of_a_rate(
    scripts: Any, events: int, trials: int, limit: float
) -> None:
    assert scripts["tally"].limit_rate(events, trials) == pytest.approx(limit, rel=1e-4)


def test_without_events_three_over_n(scripts: Any) -> None:
    n = 1_000_000
    expected = -math.log(0.05) / n
    assert scripts["tally"].limit_rate(0, n) == pytest.approx(expected, rel=1e-4)


def test_a_run_is_drawn_from_its_number_alone(scripts: Any) -> None:
    draws = [scripts["soak_draws"].draw_run(7, number) for number in range(200)]
    assert draws[150] == scripts["soak_draws"].draw_run(7, 150)
    assert draws[150] != scripts["soak_draws"].draw_run(8, 150)
    # All of them are scenarios, and everything is drawn at some time.
    assert {draw.scenario.spec.kind for draw in draws} == set(
        scripts["soak_draws"].KINDS
    )
    assert {draw.dtype for draw in draws} == set(DTYPES)
    assert not any(draw.path == "none" for draw in draws)


def test_an_own_optimizer_is_there(scripts: Any) -> None:
    for target in scripts["soak_draws"].OWN:
        file, _, factory = target.partition(":")
        assert f"def {factory}()" in (ROOT / file).read_text()


@pytest.mark.parametrize("broken", ["observe", "check_target"])
def test_a_cluster_that_breaks_costs_its_own_run_alone(
    scripts: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, broken: str
) -> None:
    def fail(*_: Any) -> Any:
        raise ClusterError("no ports")

    soak = scripts["soak"]
    seen = SimpleNamespace(failure="raises")
    monkeypatch.setattr(soak, "observe", lambda *_: seen)
    monkeypatch.setattr(soak, broken, fail)
    file, counts = tmp_path / "soak.json", scripts["soak_counts"].Counts()
    soak.soak(1, runs=3, minutes=0.0, file=file, counts=counts)
    assert counts.unrun == {"the cluster broke": 3}


def test_what_was_counted_is_written_whatever_ends_a_soak(
    scripts: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(scripts["soak"], "observe", fail)
    file, counts = tmp_path / "soak.json", scripts["soak_counts"].Counts()
    with pytest.raises(RuntimeError):
        scripts["soak"].soak(1, runs=3, minutes=0.0, file=file, counts=counts)
    assert file.exists()


def test_the_command_names_all_that_was_drawn(scripts: Any) -> None:
    draw = scripts["soak_draws"].Draw(
        number=1,
        target="tf_keras.optimizers.legacy:Adam",
        workload="mlp",
        cluster="mwms:3",
        path="user",
        dtype="float16",
        seed=5,
        steps=2,
    )
    assert draw.command == (
        "distbench check tf_keras.optimizers.legacy:Adam -c mwms:3 --workload mlp "
        "--path user --dtype float16 --seed 5 --steps 2 --tier exact --tier bounded "
        "--tier free"
    )


def test_unusual_programs_are_drawn_on_strategies_they_are_for(scripts: Any) -> None:
    kinds = {
        sample.target: {ClusterSpec.parse(spec).kind for spec in sample.clusters}
        for sample in UNUSUAL
    }
    draws = [scripts["soak_draws"].draw_run(3, number) for number in range(5000)]
    unusual = [draw for draw in draws if draw.target in kinds]
    assert all(draw.scenario.spec.kind in kinds[draw.target] for draw in unusual)
    assert {draw.scenario.spec.kind for draw in unusual} == {"mirrored", "mwms"}
    assert any(kinds[draw.target] == {"mirrored"} for draw in unusual)


def test_a_plain_run_is_counted_against_the_global_batch(scripts: Any) -> None:
    evidence = observe()
    found = list(scripts["soak_counts"].list_comparisons(evidence, judge(evidence)))
    assert "one device, the global batch" in {c.against for c in found}
    assert not any(c.wrong for c in found)
