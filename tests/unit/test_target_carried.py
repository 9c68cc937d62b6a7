"""Files of subjects that travel: to other nodes, to spawned processes, and in time."""

from __future__ import annotations

import inspect
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from target_files import keep_imports, write

from distbench.errors import BadInputError
from distbench.target import (
    TargetRef,
    adopt_target,
    parse_target,
    target_from_json,
    target_to_json,
)
from distbench.target.loading import LoadError, describe_user_error, load_target

pytestmark = pytest.mark.usefixtures(keep_imports.__name__)


@pytest.fixture
def carried(tmp_path: Path) -> TargetRef:
    """A file in the folder of a run, which this machine lacks at its own place."""
    source = "def make(x):\n    if x > 1:\n        return 1 / 0\n    return make\n"
    file = write(tmp_path / "bench", source)
    (tmp_path / "run").mkdir()
    ref = parse_target(f"{file}:make")
    ref = adopt_target(ref, tmp_path / "run", is_far=True)
    file.unlink()
    return target_from_json(target_to_json(ref))


def test_a_file_that_travelled_is_loaded_as_if_it_were_at_its_place(
    carried: TargetRef, tmp_path: Path
) -> None:
    make = load_target(carried)
    assert carried.describe() == f"{tmp_path / 'bench' / 'train.py'}:make"
    # AutoGraph asks for the source, and tracebacks for lines of it.
    assert inspect.getsource(make).endswith("return make\n")
    with pytest.raises(ZeroDivisionError) as caught:
        make(2)
    told = describe_user_error(caught.value)
    assert told.endswith(f"{tmp_path / 'bench' / 'train.py'} line 3: `return 1 / 0`")


def test_another_file_in_the_place_of_one_that_travelled_is_refused(
    carried: TargetRef, tmp_path: Path
) -> None:
    write(tmp_path / "bench", "def make(x):\n    return 0\n")
    with pytest.raises(BadInputError, match="is another file than that of the bench"):
        load_target(carried)


def test_what_a_node_lacks_is_not_the_doing_of_a_file(
    carried: TargetRef, tmp_path: Path
) -> None:
    """A node may lack a module or a file that others have; a file's code raises."""
    assert catch(carried) is None
    source = Path(carried.copy)
    for text in ("import no_such_module", "open('/no/such.csv')"):
        source.write_text(text)
        assert catch(carried).is_own is False
    assert catch(replace(carried, is_kept=True)).is_own is True
    source.write_text("import no_such_module")
    assert catch(replace(carried, is_kept=True)).is_own is False
    source.write_text("raise KeyError")
    assert catch(carried).is_own is True
    gone = TargetRef(kind="import", module="no_such_module", attribute="make")
    assert catch(gone).is_own is False


def catch(ref: TargetRef) -> LoadError | None:
    """What loading a subject anew raises."""
    for name in [n for n in sys.modules if n.startswith("distbench_target_")]:
        del sys.modules[name]
    try:
        load_target(ref)
    except LoadError as error:
        return error
    return None


@pytest.mark.parametrize("name", ["train.py", "my train.v2.py", f"{'x' * 250}.py"])
@pytest.mark.parametrize("is_far", [False, True], ids=["here", "far"])
def test_processes_that_a_file_spawns_find_its_functions(
    tmp_path: Path, name: str, is_far: bool
) -> None:
    source = "def make(x):\n    return x + 1, __file__, __name__\n"
    file = write(tmp_path, source, name)
    (tmp_path / "run").mkdir()
    ref = adopt_target(parse_target(f"{file}:make"), tmp_path / "run", is_far=is_far)
    make = load_target(ref)
    assert make.__module__ in sys.modules
    # A nested spawn finds it as well, by the path that it was given.
    code = (
        "import pickle, sys\n"
        f"sys.path[:] = {sys.path!r}\n"
        f"make = pickle.loads({pickle.dumps(make)!r})\n"
        "assert pickle.loads(pickle.dumps(make)) is make\n"
        "print(make(5))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert told.stdout.strip() == str((6, str(file), make.__module__))
    assert len([*tmp_path.glob("importable-*")]) == 1  # it is there for a child's, too


@pytest.mark.parametrize("after", [None, "", "def other(x):\n    return x\n"])
def test_a_file_that_is_saved_or_lost_while_it_is_checked_is_loaded_as_it_was(
    tmp_path: Path, after: str | None
) -> None:
    file = write(tmp_path, "def make(x):\n    return 1 / x\n")
    (tmp_path / "run").mkdir()
    ref = adopt_target(parse_target(f"{file}:make"), tmp_path / "run", is_far=False)
    file.unlink()
    if after is not None:
        write(tmp_path, after)
    make = load_target(target_from_json(target_to_json(ref)))
    assert inspect.getsource(make) == "def make(x):\n    return 1 / x\n"
    assert make.__globals__["__file__"] == str(file)
    with pytest.raises(ZeroDivisionError) as caught:
        make(0)
    assert describe_user_error(caught.value).endswith(f"{file} line 2: `return 1 / x`")


@pytest.mark.parametrize(
    "source", ["import neighbour_of_nobody", "open(__file__ + '.data')"]
)
def test_what_a_file_needs_beside_it_does_not_travel_and_that_is_said(
    carried: TargetRef, source: str
) -> None:
    Path(carried.copy).write_text(source)
    with pytest.raises(BadInputError, match=r"neighbour|data.*Only the file itself"):
        load_target(carried)
