"""The history's file: many writers, killed writers, files that are none."""

from __future__ import annotations

import math
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from night_samples import MACHINE, make_key, make_night, make_row
from verdict_samples import EVIL, make_finding, make_run, make_verdict

from distbench.errors import BadInputError, ClusterError
from distbench.history.night import Cause, Key
from distbench.history.night import make_night as read_verdict
from distbench.history.store import SCHEMA, History
from distbench.verdict import Status, Worst

WRITERS, NIGHTS, ROWS = 6, 8, 40
# What a process does that adds nights until it is told to stop, or killed.
WRITE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from night_samples import make_night, make_row
from distbench.history.store import History
history = History(Path(sys.argv[2]))
for number in range(int(sys.argv[4])):
    rows = (make_row(f"s{place}", seconds=number) for place in range(int(sys.argv[5])))
    history.add(make_night(*rows, number=number, target=sys.argv[3]))
    print(number, flush=True)
"""


def start_writer(file: Path, name: str, nights: int, rows: int) -> subprocess.Popen:
    words = [str(Path(__file__).parent), str(file), name, str(nights), str(rows)]
    return subprocess.Popen(
        [sys.executable, "-c", WRITE, *words], stdout=subprocess.PIPE, text=True
    )


def test_what_was_kept_is_read_back(tmp_path: Path) -> None:
    history = History(tmp_path / "h.sqlite")
    night = make_night(
        make_row(
            "a", error_over_bound=math.inf, status=Status.FAIL, message=f"x{EVIL}"
        ),
        make_row(
            "b",
            error_over_bound=None,
            causes=(Cause(code="raises", phase="build", variable=EVIL),),
            quarantined=True,
        ),
        environment={**MACHINE, "variables": {"NCCL_ALGO": EVIL}},
    )
    number = history.add(night)
    read = history.read_night(number)
    assert (read.id, read.started, read.target) == (1, night.started, night.target)
    assert read.environment == night.environment
    assert read.machine == night.machine
    assert read.rows[1] == night.rows[1]
    # A surrogate is no character that a database takes.
    message = night.rows[0].message.replace("\ud800", r"\ud800")
    assert read.rows[0].message == message
    assert read.rows[0].error_over_bound == math.inf


def test_the_last_nights_of_a_machine_are_listed(tmp_path: Path) -> None:
    history = History(tmp_path / "h.sqlite")
    other = {**MACHINE, "machine": {"cpu": "b"}}
    for number in range(4):
        environment = other if number == 2 else MACHINE
        history.add(make_night(make_row(), number=number, environment=environment))
    machine = make_night().machine
    assert [night.id for night in history.list_nights(2)] == [3, 4]
    assert [night.id for night in history.list_nights(3, machine)] == [1, 2, 4]
    with pytest.raises(BadInputError, match=r"no night 9\. Expected 1 to 4"):
        history.read_night(9)


@pytest.mark.sweep
def test_several_processes_lose_no_row(tmp_path: Path) -> None:
    file = tmp_path / "h.sqlite"  # not there yet: all of them try to make it
    writers = [start_writer(file, f"writer {n}", NIGHTS, ROWS) for n in range(WRITERS)]
    for writer in writers:
        writer.communicate(timeout=120)
        assert writer.returncode == 0
    nights = History(file).list_nights(WRITERS * NIGHTS + 1)
    assert len(nights) == WRITERS * NIGHTS
    names = [f"s{place}" for place in range(ROWS)]
    for writer in range(WRITERS):
        own = [night for night in nights if night.target == f"writer {writer}"]
        assert [night.rows[0].seconds for night in own] == list(range(NIGHTS))
        assert all([r.key.scenario for r in n.rows] == names for n in own)


@pytest.mark.sweep
def test_a_killed_writer_leaves_whole_nights_and_a_file_that_takes_more(
    tmp_path: Path,
) -> None:
    file, rows = tmp_path / "h.sqlite", 3000
    said = 0
    for after_s in (0.0, 0.01, 0.02, 0.03):  # at different places of a transaction
        writer = start_writer(file, "killed", 10_000, rows)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(after_s)
        writer.send_signal(signal.SIGKILL)
        rest = writer.communicate(timeout=60)[0]
        said += 1 + rest.count("\n")
    nights = History(file).list_nights(said + 10)
    # What a writer was told is kept is there; of the last it may not have heard.
    assert said <= len(nights) <= said + 4
    assert {len(night.rows) for night in nights} == {rows}
    assert History(file).add(make_night(make_row())) > len(nights)
    with sqlite3.connect(file) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database.close()


def test_a_writer_that_dies_in_its_transaction_leaves_nothing_of_it(
    tmp_path: Path,
) -> None:
    file = tmp_path / "h.sqlite"
    History(file).add(make_night(make_row("before")))
    code = """
import os, sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA cache_size = 1")  # so that pages reach the file at once
database.execute("BEGIN IMMEDIATE")
for number in range(20_000):
    row = (1, number + 10, "t", "s", "", "", 0, "pass", 0, 1.0, 1.0, "[]", "")
    database.execute(f"INSERT INTO runs VALUES ({', '.join('?' * 13)})", row)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", code, str(file)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert file.with_name("h.sqlite-journal").exists()  # it died in the middle
    [night] = History(file).list_nights(5)
    assert [row.key.scenario for row in night.rows] == ["before"]


def test_a_file_that_another_process_holds_is_told(tmp_path: Path) -> None:
    file = tmp_path / "h.sqlite"
    History(file).add(make_night(make_row()))
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(ClusterError, match="could not be used: database is locked"):
            History(file, wait_s=0.1).add(make_night(make_row()))
    finally:
        holder.close()
    assert len(History(file).list_nights(5)) == 1


def test_a_newer_schema_says_so(tmp_path: Path) -> None:
    file = tmp_path / "h.sqlite"
    History(file).add(make_night(make_row()))
    with sqlite3.connect(file) as database:
        database.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    database.close()
    for use in (lambda h: h.list_nights(1), lambda h: h.add(make_night(make_row()))):
        with pytest.raises(BadInputError, match=f"has schema {SCHEMA + 1}"):
            use(History(file))


def write_other(file: Path) -> None:
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE nights (x)")
    database.close()


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (write_other, "a database, and no history"),
        (lambda file: file.write_text("{}" * 5000), "is no history, or is damaged"),
        (lambda file: file.touch(), "holds no night"),
        (lambda file: None, "There is no history"),
        (lambda file: file.mkdir(), "but a folder, a device or a pipe"),
    ],
    ids=["other", "text", "empty", "none", "folder"],
)
def test_a_file_that_is_no_history_is_told(tmp_path: Path, write, message: str) -> None:
    file = tmp_path / "h.sqlite"
    write(file)
    with pytest.raises(BadInputError, match=message):
        History(file).list_nights(5)


def test_a_name_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="can be no history: file name too long"):
        History(tmp_path / ("x" * 300)).find_copy(make_night(make_row()))


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE nights SET environment = '{'",
        "UPDATE nights SET environment = '3'",
        "UPDATE nights SET started = 'yesterday'",
        "UPDATE runs SET status = 'great'",
        "UPDATE runs SET causes = '[[1]]'",
        "DROP TABLE runs",
    ],
)
def test_a_history_that_others_changed_is_told(tmp_path: Path, change: str) -> None:
    file = tmp_path / "h.sqlite"
    History(file).add(make_night(make_row()))
    with sqlite3.connect(file) as database:
        database.execute(change)
    database.close()
    with pytest.raises((BadInputError, ClusterError), match=r"h\.sqlite"):
        History(file).list_nights(5)


def test_the_first_night_makes_the_folder_and_no_more(tmp_path: Path) -> None:
    assert History(tmp_path / "nights" / "h.sqlite").add(make_night(make_row())) == 1
    with pytest.raises(ClusterError, match="unable to open database file"):
        History(tmp_path / "no" / "no" / "h.sqlite").add(make_night(make_row()))


def give_keys(*runs, **changes) -> list[Key]:
    return [row.key for row in read_verdict(make_verdict(*runs, **changes)).rows]


def test_a_scenario_is_the_same_one_in_another_checkout(tmp_path: Path) -> None:
    keys = []
    for name in ("one", "two"):
        root = tmp_path / name
        run = make_run(setup={"target": f"{root}/opt/adam.py:make"})
        verdict = make_verdict(run, target=f"{root}/opt/adam.py:make")
        night = read_verdict(verdict, root=root)
        assert night.target == "opt/adam.py:make"
        keys.append(night.rows[0].key)
    assert keys[0] == keys[1]
    assert keys[0].target == "opt/adam.py:make"


def test_a_folder_within_a_path_is_no_beginning_of_it() -> None:
    verdict = make_verdict(make_run(), target="/home/me/a.py:b, /me/c.py:d")
    night = read_verdict(verdict, root=Path("/me"))
    assert night.target == "/home/me/a.py:b, c.py:d"


@pytest.mark.parametrize("is_made", [True, False], ids=["empty", "none"])
def test_a_history_without_a_night_has_no_copy_of_any(
    tmp_path: Path, is_made: bool
) -> None:
    """As a file is that was made beforehand, or whose first night is being added."""
    file = tmp_path / "h.sqlite"
    if is_made:
        file.touch()
    assert History(file).find_copy(make_night(make_row())) is None
    assert file.exists() == is_made


SETUP = {
    "target": "a.b:c",
    "dtype": "float32",
    "examples": 0,
    "seed": 1,
    "steps": 3,
    "keras": None,
    "jit": None,
    "timeout_s": 120.0,
    "split": [5, 3],
}


@pytest.mark.parametrize(
    ("changes", "variant"),
    [
        ({}, ""),
        ({"timeout_s": 300.0}, ""),
        ({"split": []}, ""),  # a run that ended before it had shards
        ({"split": [4, 4]}, ""),  # those of `fit`
        ({"split": [8, 0]}, "split=8,0"),
        ({"split": [8]}, ""),
        ({"dtype": "float64", "examples": 64}, "dtype=float64 examples=64"),
        ({"loss_weight": 1.0}, ""),
        ({"loss_weight": 0.25}, "loss_weight=0.25"),
        ({"jit": False, "keras": "3", "seed": 2}, "seed=2 keras=3 jit=False"),
    ],
)
def test_what_the_id_does_not_say_is_a_variant(changes: dict, variant: str) -> None:
    [key] = give_keys(make_run(setup={**SETUP, **changes}))
    assert key == Key(
        target="a.b:c", scenario="mlp-adam-mwms:2-none", tier="bounded", variant=variant
    )


def test_what_comes_twice_is_counted() -> None:
    keys = give_keys(make_run(), make_run(), make_run(tier="exact"))
    assert [key.copy for key in keys] == [0, 1, 0]
    assert str(keys[1]) == "mlp-adam-mwms:2-none [bounded] (2)"


def test_warnings_and_numbers_that_are_none_are_not_kept() -> None:
    worst = Worst(phase="loss", variable="", error_over_bound=math.nan)
    found = (make_finding(code="lower-precision", warning=True), make_finding())
    run = make_run(Status.FAIL, worst=worst, findings=found, message="x" * 9999)
    [row] = read_verdict(make_verdict(run)).rows
    assert row.error_over_bound is None
    assert [str(cause) for cause in row.causes] == [
        "missing-reduction in reduced_gradient of dense/kernel"
    ]
    assert len(row.message) == 500
    assert row.key == make_key("mlp-adam-mwms:2-none", target="optimizers.py:adam")
