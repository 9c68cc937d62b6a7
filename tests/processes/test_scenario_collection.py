"""Which scenarios `pytest scenarios/` makes of its options; nothing is run."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from imported_scripts import import_scripts

from distbench.machine import Machine

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
Collect = Callable[..., pytest.RunResult]


@pytest.fixture
def collect(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Collect:
    """What `pytest scenarios --collect-only` says, from a pytest in this process."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)

    def run(*options: str) -> pytest.RunResult:
        with monkeypatch.context() as there:
            there.chdir(ROOT)
            # The cache and the hypothesis database are the outer session's.
            unwanted = ("cacheprovider", "hypothesispytest")
            return pytester.runpytest_inprocess(
                *(f"-pno:{name}" for name in unwanted),
                "scenarios",
                "--collect-only",
                "-q",
                *options,
            )

    return run


def test_ids_name_workload_optimizer_cluster_and_path(collect: Collect) -> None:
    listed = collect().stdout.str()
    assert "[linear-lazy_adam-mwms:2-default]" in listed
    assert "[mlp-adam-mwms:2-aggregator]" in listed
    assert "agrees[Unreduced-mwms:2]" in listed


def test_options_replace_optimizers_and_clusters(collect: Collect) -> None:
    listed = collect(
        "--optimizer=scenarios/optimizers/momentum.py:make_momentum",
        "--clusters=mwms:3,central:2",
    ).stdout.str()
    assert "[mlp-momentum-mwms:3-aggregator]" in listed
    assert "lazy_adam" not in listed
    assert "mirrored:2" not in listed
    # Nor are programs with an optimizer of their own run beside it.
    assert "agrees[Unreduced" not in listed
    # What the framework refuses is only asked of the kinds that refuse it.
    assert "test_framework_refuses[linear-momentum-central:2-user]" in listed
    assert "test_framework_refuses[linear-momentum-mwms:3-user]" not in listed


def test_one_cluster_of_each_scenario_takes_turns(collect: Collect) -> None:
    test = "test_network_on_real_data_agrees[mlp-adam-"
    clusters = ("mirrored:2", "mwms:2", "ps:2+1")
    every = collect().stdout.str()
    assert all(f"{test}{cluster}-default]" in every for cluster in clusters)
    thinned = collect("--one-cluster").stdout.str()
    assert thinned.count(test) == 1
    assert all(f"-{cluster}-default]" in thinned for cluster in clusters)


def test_every_other_scenario_leaves_each_file_its_first(collect: Collect) -> None:
    def list_ids(*options: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for line in collect(*options).stdout.lines:
            if "::" in line and "[" in line:
                found.setdefault(line.partition("::")[0], []).append(line)
        return found

    every, other = list_ids("--one-cluster"), list_ids("--one-cluster", "--every=2")
    assert max(map(len, every.values())) > 2
    assert other == {file: cases[::2] for file, cases in every.items()}


def test_programs_run_on_the_clusters_that_they_can_have(
    collect: Collect,
) -> None:
    listed = collect("--clusters=mirrored:3,central:2,mwms:4").stdout.str()
    assert "agrees[Unreduced-mirrored:3]" in listed
    assert "agrees[Unreduced-mwms:4]" in listed
    # A mistake of one worker alone needs workers, and central storage has no copies.
    assert "one_worker_is_found[ChiefLowers-mwms:4]" in listed
    assert "one_worker_is_found[ChiefLowers-mirrored:3]" not in listed
    assert "Unreduced-central:2" not in listed


@pytest.mark.parametrize(
    ("cluster", "replicas"),
    [
        ("mirrored:2@cpu", 2),
        ("mirrored:4@gpu", 4),
        ("mwms:2x2", 4),
        ("mirrored:all@gpu", 3),
        ("mwms:all@gpu", 3),
    ],
)
def test_replicas_are_counted_of_every_spec(cluster: str, replicas: int) -> None:
    place = ROOT / "scenarios" / "conftest.py"
    spec = importlib.util.spec_from_file_location("scenarios_conftest", place)
    assert spec is not None
    assert spec.loader is not None
    there = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "scenarios_conftest", there)  # for its dataclass
        spec.loader.exec_module(there)
    machine = Machine(cores=2, memory_bytes=0, gpus=3)
    assert there.count_replicas(cluster, machine) == replicas


@pytest.mark.parametrize(
    ("option", "named"),
    [
        pytest.param("--clusters=mwmz:2", "Did you mean 'mwms:2'", id="cluster"),
        pytest.param("--optimizer=no/such.py:make", "no/such.py", id="target"),
        pytest.param("--clusters=mwms:2,", "Expected mwms:2, for", id="comma"),
        pytest.param("--clusters=", "--clusters: it is empty", id="no cluster"),
        pytest.param("--optimizer=", "--optimizer: it is empty", id="no target"),
        pytest.param("--every=0", "takes a whole number from 1", id="every"),
        pytest.param("--require-gpus=-1", "must not be negative", id="gpus"),
    ],
)
def test_bad_option_is_one_clear_error(
    collect: Collect, option: str, named: str
) -> None:
    done = collect(option)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert named in done.stderr.str()
    assert "Traceback" not in done.stdout.str() + done.stderr.str()


def test_every_file_says_which_bug_it_would_catch_and_links_it():
    files = sorted((ROOT / "scenarios").glob("test_*.py"))
    assert files
    for file in files:
        heading = file.read_text().split('"""')[1]
        assert heading.startswith("Would catch "), file.name
        assert "https://github.com/" in heading, file.name


def test_every_option_of_a_nights_tests_is_one(
    collect: Collect, tmp_path: Path
) -> None:
    with import_scripts("nightly_plan") as scripts:
        [job] = scripts["nightly_plan"].plan_jobs(
            ["mwms:2"],
            [Path("scenarios/test_clipping.py")],
            [],
            [],
            require_gpus=2,
            workers=2,
            engine="slurm",
        )
    _, module, pytest_, file, *words = job.make_command(tmp_path / "v.json")
    assert (module, pytest_, file) == ("-m", "pytest", "scenarios/test_clipping.py")
    assert collect(*words).ret == 0


def test_scenarios_are_collected_beside_cases_of_others(collect: Collect) -> None:
    found = collect("tests/faults")
    assert found.ret == 0
    assert "tests/faults/test_injured.py" in found.stdout.str()
    assert "[linear-lazy_adam-mwms:2-default]" in found.stdout.str()
