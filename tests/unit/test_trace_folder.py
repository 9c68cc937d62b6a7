"""One trace in many files: joined, and refused where they do not belong together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from recorded_runs import train, write_parts

from distbench.errors import BadInputError
from distbench.trace import Trace, TraceKey
from distbench.trace.files import write_trace
from distbench.trace.folder import find_parts, name_part, read_folder


@pytest.mark.parametrize("tasks", [1, 2])
def test_the_parts_of_all_tasks_and_steps_are_joined(
    tmp_path: Path, tasks: int
) -> None:
    trace = train(2, steps=12)
    read = read_folder(write_parts(trace, tmp_path / "run", tasks))
    assert read.name == "run"
    assert read.steps == 12
    assert set(read.values) == set(trace.values)
    for key, value in trace.values.items():
        np.testing.assert_array_equal(read.values[key], value)


def test_what_was_written_before_a_job_died_is_read(tmp_path: Path) -> None:
    write_parts(train(2), tmp_path)
    # An array file whose description was not written yet, and a temporary one.
    (tmp_path / "worker-0.step-000002.json").unlink()
    (tmp_path / ".worker-0.step-000003.npz.7").write_bytes(b"half")
    assert read_folder(tmp_path).steps == 2


def test_variables_that_a_later_step_made_are_joined(tmp_path: Path) -> None:
    trace = write_parts(train(1, steps=1), tmp_path)
    whole = read_folder(trace)
    first = replace(whole, variables=whole.variables[:1], values={})
    write_trace(first, tmp_path, name_part("worker-0", 0))
    write_trace(whole, tmp_path, name_part("worker-0", 1))
    paths = [variable.path for variable in read_folder(tmp_path).variables]
    assert paths == [variable.path for variable in whole.variables]


def test_parts_are_found_by_their_task(tmp_path: Path) -> None:
    write_parts(train(2, steps=2), tmp_path, tasks=2)
    assert find_parts(tmp_path, "worker-1") == [
        "worker-1.step-000000",
        "worker-1.step-000001",
    ]
    assert find_parts(tmp_path, "chief-0") == []


def test_a_folder_without_a_trace_names_those_below(tmp_path: Path) -> None:
    write_parts(train(1), tmp_path / "runs" / "one")
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(BadInputError, match=r"There are traces in .*runs/one\."):
        read_folder(tmp_path)
    with pytest.raises(BadInputError, match=r"distbench\.record .* write some"):
        read_folder(tmp_path / "nowhere")


def test_no_disk_is_searched_for_traces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parts(train(1), tmp_path / "a" / "b" / "c" / "d" / "e")
    with pytest.raises(BadInputError, match=r"distbench\.record .* write some"):
        read_folder(tmp_path)
    read_folder(tmp_path / "a" / "b" / "c" / "d" / "e")
    with pytest.raises(BadInputError, match="There are traces in"):
        read_folder(tmp_path / "a")
    monkeypatch.setattr("distbench.trace.folder._LOOKED_AT", 3)
    with pytest.raises(BadInputError, match=r"distbench\.record .* write some"):
        read_folder(tmp_path / "a")


def test_parts_of_two_runs_are_refused(tmp_path: Path) -> None:
    write_parts(train(2), tmp_path)
    values = {TraceKey(step=0, phase="loss"): np.zeros(())}
    other = Trace(name="x", replicas=4, shards=(), variables=(), values=values)
    write_trace(other, tmp_path, name_part("worker-3", 0))
    with pytest.raises(BadInputError, match=r"one number of replicas.*2, 4"):
        read_folder(tmp_path)


def test_a_damaged_part_is_named(tmp_path: Path) -> None:
    write_parts(train(1), tmp_path)
    (tmp_path / "worker-0.step-000001.npz").write_bytes(b"no archive")
    with pytest.raises(BadInputError, match=r"step-000001.*cannot be read"):
        read_folder(tmp_path)
