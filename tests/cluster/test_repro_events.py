"""Scripts of findings that are no wrong number: examples, races and what is raised."""

from __future__ import annotations

import re

import pytest
from script_checks import FOLDER, name_other, run_script

import distbench

# Each starts TensorFlow anew, several times.
pytestmark = [pytest.mark.cluster, pytest.mark.nightly]


@pytest.mark.parametrize(
    ("wrong", "right", "again", "never", "others"),
    [
        ("NotSharded", "Sharded", 24, 0, 0),
        ("SwitchedOff", "Distributed", 24, 0, 0),
        ("OneShardTooMany", "Shuffled", 0, 8, 0),
        ("EndlesslyNotSharded", "Endless", 4096, 0, 0),
        ("EndlesslyOneTooMany", "Endless", 0, 8, 0),
        ("ScaledByPipeline", "Sharded", 0, 0, 12),
        ("EndlesslyScaledByPipeline", "Endless", 0, 0, 12),
    ],
)
def test_examples_are_counted_again(wrong, right, again, never, others, tmp_path):
    verdict = distbench.check(f"{FOLDER}/pipelines.py:{wrong}", "mwms:2", steps=2)
    code, printed, errors = run_script(verdict, tmp_path)
    assert code == 1, printed + errors
    counts = f": {again} come again, {never} never come, {others} are others\n"
    assert counts in printed
    other = name_other(verdict, f"{FOLDER}/pipelines.py:{right}")
    code, printed, errors = run_script(other, tmp_path)
    assert code == 0, printed + errors
    assert ": 0 come again, 0 never come, 0 are others\n" in printed


def test_a_pipeline_that_only_the_cluster_cannot_read_is_shown(tmp_path):
    subject = f"{FOLDER}/pipelines.py:FromTooFewFiles"
    verdict = distbench.check(subject, "mwms:3", tier="bounded")
    code, printed, errors = run_script(verdict, tmp_path)
    assert code == 1, errors
    assert "Could not apply FILE based sharding" in printed
    right = name_other(verdict, f"{FOLDER}/pipelines.py:FromUnevenFiles")
    code, printed, errors = run_script(right, tmp_path)
    assert (code, set(printed.splitlines())) == (0, {"nothing raises"}), errors


def test_a_race_of_steps_in_flight_is_shown(tmp_path):
    wrong, right = (
        f"{FOLDER / 'repro_subjects.py'}:{name}"
        for name in ("make_read_then_assigned", "make_in_place")
    )
    verdict = distbench.check(wrong, "ps:2+1", in_flight=8)
    assert verdict.findings[0].code == "lost-update"
    code, printed, errors = run_script(verdict, tmp_path)
    assert code == 1, printed + errors
    wrong_count = re.search(r"wrong in (\d+) of (\d+) elements", printed)
    assert wrong_count is not None
    assert 0 < int(wrong_count[1]) <= int(wrong_count[2])
    code, printed, errors = run_script(name_other(verdict, right), tmp_path)
    assert code == 0, printed + errors
    assert "wrong in 0 of" in printed


def test_what_only_the_cluster_raises_is_shown(tmp_path):
    subject = f"{FOLDER / 'subjects.py'}:RaisesOnSecondReplica"
    verdict = distbench.check(subject, "mirrored:2", tier="bounded")
    code, printed, errors = run_script(verdict, tmp_path)
    assert code == 1, errors
    assert "no slot on this replica" in printed
    right = name_other(verdict, f"{FOLDER / 'subjects.py'}:Program")
    code, printed, _ = run_script(right, tmp_path)
    assert (code, printed.strip()) == (0, "nothing raises")


def test_a_script_that_breaks_shows_no_finding(tmp_path):
    subject = f"{FOLDER / 'subjects.py'}:NobodyReduces"
    verdict = distbench.check(subject, "mirrored:2", tier="bounded")
    broken = name_other(verdict, f"{FOLDER / 'subjects.py'}:RaisesEverywhere")
    code, printed, errors = run_script(broken, tmp_path)
    assert code == 3
    assert printed == ""
    assert "broken from the start" in errors
