"""The history's file: one SQLite database that many processes may write at once.

Each night is one transaction. The database keeps a rollback journal and no write-ahead
log: the log needs memory that processes share, which a network file system does not
give, and a queue's nodes write to one.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from distbench.errors import BadInputError, ClusterError
from distbench.history.night import Cause, Key, Night, Row
from distbench.verdict import Status

SCHEMA = 1
_APPLICATION = 0x64626831  # "dbh1": tells a history from any other database
_WAIT_S = 60.0
_NEW = "create a new one under another name, or upgrade distbench"

_TABLES = (
    """CREATE TABLE nights (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        started TEXT NOT NULL,
        target TEXT NOT NULL,
        machine TEXT NOT NULL,
        environment TEXT NOT NULL)""",
    """CREATE TABLE runs (
        night INTEGER NOT NULL REFERENCES nights (id),
        place INTEGER NOT NULL,
        target TEXT NOT NULL,
        scenario TEXT NOT NULL,
        tier TEXT NOT NULL,
        variant TEXT NOT NULL,
        copy INTEGER NOT NULL,
        status TEXT NOT NULL,
        quarantined INTEGER NOT NULL,
        seconds REAL NOT NULL,
        error_over_bound REAL,
        causes TEXT NOT NULL,
        message TEXT NOT NULL,
        PRIMARY KEY (night, place)) WITHOUT ROWID""",
)
_COUNT_TABLES = "SELECT count(*) FROM sqlite_master"
_ROW = (
    "target, scenario, tier, variant, copy, status, quarantined, seconds, "
    "error_over_bound, causes, message"
)


class History:
    """A history in a file.

    Args:
        path: The file; the first night that is added makes it, and its folder.
        wait_s: How long to wait for other writers.
    """

    def __init__(self, path: Path, *, wait_s: float = _WAIT_S) -> None:
        self._path = path
        self._wait_s = wait_s

    def add(self, night: Night) -> int:
        """Keep a night; returns its id.

        Raises:
            BadInputError: The file is no history, or one of a newer distbench.
            ClusterError: The machine could not write it.
        """
        with suppress(OSError):  # then the file cannot be opened, and that is told
            self._path.parent.mkdir(exist_ok=True)
        with self._open(create=True) as database:
            database.execute("BEGIN IMMEDIATE")
            self._prepare(database)
            place = database.execute(
                "INSERT INTO nights (started, target, machine, environment) "
                "VALUES (?, ?, ?, ?)",
                (
                    _encode_time(night),
                    _to_text(night.target),
                    _to_text(night.machine),
                    json.dumps(night.environment),
                ),
            ).lastrowid
            assert place is not None  # an INSERT has one
            database.executemany(
                f"INSERT INTO runs (night, place, {_ROW}) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    (place, number, *_encode_row(row))
                    for number, row in enumerate(night.rows)
                ),
            )
            database.execute("COMMIT")
            return place

    def find_copy(self, night: Night) -> int | None:
        """The id of a night that was made of the same verdict; None without one.

        One whose verdict does not say when it began is kept with the time at which it
        was added. Times of its runs, down to the last digits, do not come again.
        """
        if not self._is_there():
            return None
        rows = list(map(_encode_row, night.rows))
        is_measured = any(row.seconds for row in night.rows)
        with self._open(create=True) as database:
            if _is_empty(database):  # or another process makes the tables right now
                return None
            self._check(database)
            alike = database.execute(
                "SELECT id FROM nights WHERE target = ? AND (? OR started = ?) "
                "ORDER BY id",
                (_to_text(night.target), is_measured, _encode_time(night)),
            ).fetchall()
            for (number,) in alike:
                kept = database.execute(
                    f"SELECT {_ROW} FROM runs WHERE night = ? ORDER BY place", (number,)
                )
                if kept.fetchall() == rows:
                    return int(number)
        return None

    def list_nights(self, last: int, machine: str | None = None) -> tuple[Night, ...]:
        """The nights that began last, the oldest first.

        Args:
            last: How many at most.
            machine: Only those on this kind of machine.
        """
        with self._open() as database:
            found = database.execute(
                "SELECT id FROM nights WHERE machine = coalesce(?, machine) "
                "ORDER BY started DESC, id DESC LIMIT ?",
                (machine, last),
            ).fetchall()
            return tuple(_read_night(database, night) for (night,) in reversed(found))

    def read_night(self, number: int) -> Night:
        """The night with an id.

        Raises:
            BadInputError: There is none.
        """
        with self._open() as database:
            ids = [i for (i,) in database.execute("SELECT id FROM nights ORDER BY id")]
            if number not in ids:
                known = f"{ids[0]} to {ids[-1]}" if ids else "none: it is empty"
                raise BadInputError(
                    f"'{self._path}' has no night {number}. Expected {known}."
                )
            return _read_night(database, number)

    @contextmanager
    def _open(self, *, create: bool = False) -> Iterator[sqlite3.Connection]:
        if not self._is_there() and not create:
            raise BadInputError(
                f"There is no history '{self._path}'. Expected a file that "
                "'scripts/nightly' or 'distbench history --add VERDICT.json' wrote."
            )
        try:
            # Transactions begin and end where this module says so.
            connection = sqlite3.connect(
                self._path, timeout=self._wait_s, isolation_level=None
            )
            # A connection that is closed in a transaction takes it back.
            with closing(connection):
                if not create:
                    self._check(connection)
                yield connection
        except sqlite3.OperationalError as error:
            raise ClusterError(
                f"The history '{self._path}' could not be used: {error}. Is its folder "
                "there, writable and not full, and does no other process hold it?"
            ) from error
        except sqlite3.DatabaseError as error:
            raise BadInputError(
                f"'{self._path}' is no history, or is damaged: {error}. Restore it, or "
                f"{_NEW}."
            ) from error

    def _is_there(self) -> bool:
        """Whether there is a file."""
        try:
            is_there, is_file = self._path.exists(), self._path.is_file()
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise BadInputError(f"'{self._path}' can be no history: {why}.") from error
        if is_there and not is_file:
            raise BadInputError(
                f"'{self._path}' is no history, but a folder, a device or a pipe. "
                "Expected the name of a file, which need not be there yet."
            )
        return is_there

    def _prepare(self, database: sqlite3.Connection) -> None:
        """Make the tables in a new file. The caller holds the lock."""
        if not _is_empty(database):
            self._check(database)
            return
        for table in _TABLES:
            database.execute(table)
        database.execute(f"PRAGMA application_id = {_APPLICATION}")
        database.execute(f"PRAGMA user_version = {SCHEMA}")

    def _check(self, database: sqlite3.Connection) -> None:
        if _is_empty(database):
            raise BadInputError(f"The history '{self._path}' holds no night yet.")
        (application,) = database.execute("PRAGMA application_id").fetchone()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION:
            raise BadInputError(
                f"'{self._path}' is a database, and no history of distbench. Expected "
                "a file that 'scripts/nightly' wrote."
            )
        if version != SCHEMA:
            raise BadInputError(
                f"The history '{self._path}' has schema {version}, and this distbench "
                f"knows {SCHEMA}: {_NEW}."
            )


def _is_empty(database: sqlite3.Connection) -> bool:
    return bool(database.execute(_COUNT_TABLES).fetchone() == (0,))


def _read_night(database: sqlite3.Connection, number: int) -> Night:
    started, target, environment = database.execute(
        "SELECT started, target, environment FROM nights WHERE id = ?", (number,)
    ).fetchone()
    rows = database.execute(
        f"SELECT {_ROW} FROM runs WHERE night = ? ORDER BY place", (number,)
    )
    try:
        return Night(
            id=number,
            started=datetime.fromisoformat(started),
            target=target,
            environment=dict(json.loads(environment)),
            rows=tuple(_decode_row(row) for row in rows),
        )
    except (ValueError, TypeError) as error:
        # Whoever wrote that was no distbench: its own rows are whole.
        raise sqlite3.DatabaseError(f"night {number}: {error}") from error


def _to_text(text: str) -> str:
    """Text that the database takes: names from user code may be no Unicode."""
    return text.encode("utf-8", errors="backslashreplace").decode("utf-8")


def _encode_time(night: Night) -> str:
    """When a night began, in UTC, as texts that are in the order of time."""
    return night.started.isoformat(timespec="seconds")


def _encode_row(row: Row) -> tuple[object, ...]:
    causes = [[cause.code, cause.phase, cause.variable] for cause in row.causes]
    key = row.key
    return (
        _to_text(key.target),
        _to_text(key.scenario),
        key.tier,
        key.variant,
        key.copy,
        str(row.status),
        int(row.quarantined),
        row.seconds,
        row.error_over_bound,
        json.dumps(causes),
        _to_text(row.message),
    )


def _decode_row(values: Sequence[Any]) -> Row:
    target, scenario, tier, variant, copy, *rest = values
    status, quarantined, seconds, error, causes, message = rest
    return Row(
        key=Key(
            target=target, scenario=scenario, tier=tier, variant=variant, copy=copy
        ),
        status=Status(status),
        seconds=seconds,
        error_over_bound=error,
        causes=tuple(
            Cause(code=code, phase=phase, variable=variable)
            for code, phase, variable in json.loads(causes)
        ),
        message=message,
        quarantined=bool(quarantined),
    )
