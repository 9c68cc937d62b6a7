"""Which scenarios `pytest scenarios/` makes of its options; nothing is run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def collect(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "scenarios", "--collect-only", "-q", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_ids_name_workload_optimizer_cluster_and_path():
    listed = collect().stdout
    assert "[linear-lazy_adam-mwms:2-default]" in listed
    assert "[mlp-adam-mwms:2-aggregator]" in listed


def test_options_replace_optimizers_and_clusters():
    listed = collect(
        "--optimizer=scenarios/optimizers/momentum.py:make_momentum",
        "--clusters=mwms:3,central:2",
    ).stdout
    assert "[mlp-momentum-mwms:3-aggregator]" in listed
    assert "lazy_adam" not in listed
    assert "mirrored:2" not in listed
    # What the framework refuses is only asked of the kinds that refuse it.
    assert "test_framework_refuses[linear-momentum-central:2-user]" in listed
    assert "test_framework_refuses[linear-momentum-mwms:3-user]" not in listed


@pytest.mark.parametrize(
    ("option", "named"),
    [
        pytest.param("--clusters=mwmz:2", "Did you mean 'mwms:2'", id="cluster"),
        pytest.param("--optimizer=no/such.py:make", "no/such.py", id="target"),
    ],
)
def test_bad_option_is_one_clear_error(option, named):
    done = collect(option)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert named in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_every_file_says_which_bug_it_would_catch_and_links_it():
    files = sorted((ROOT / "scenarios").glob("test_*.py"))
    assert files
    for file in files:
        heading = file.read_text().split('"""')[1]
        assert heading.startswith("Would catch "), file.name
        assert "https://github.com/" in heading, file.name
