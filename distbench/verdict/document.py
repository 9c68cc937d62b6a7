"""A verdict as the contract's JSON document: written, and read without running any."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from datetime import datetime, timezone
from enum import Enum
from typing import Any

from distbench.details import details_from_json, details_to_json
from distbench.errors import BadInputError
from distbench.verdict import Finding, Outcome, Run, Status, Verdict, Worst

SCHEMA = "distbench/verdict/1"
_BROKEN = (LookupError, TypeError, ValueError, OverflowError, RecursionError)
"""What a document that is no verdict makes of an attempt to read it."""
_FINDING_NUMBERS = ("ratio", "error", "bound", "confidence")
_OUTCOME_NUMBERS = ("expected", "observed", "bound")


def verdict_to_json(verdict: Verdict, *, details: bool = False) -> str:
    """The contract's JSON document.

    Args:
        verdict: What to write.
        details: Whether to write the runs' details too.
    """
    document = {
        "schema": SCHEMA,
        "target": verdict.target,
        "status": str(verdict.status),
        "begun": verdict.begun and verdict.begun.isoformat(timespec="seconds"),
        "seconds": verdict.seconds,
        "options": dict(verdict.options),
        "environment": dict(verdict.environment),
        "runs": [_describe_run(run, details) for run in verdict.runs],
    }
    return json.dumps(_encode(document), indent=1, allow_nan=False)


def verdict_from_json(text: str) -> Verdict:
    """Read a verdict back. Executes nothing.

    Raises:
        BadInputError: The text is not a verdict.
    """
    try:
        document = json.loads(text)
        schema = _take(document, "schema", str)
        if schema != SCHEMA:
            raise BadInputError(
                f"The verdict is of another schema. Expected {SCHEMA!r}. "
                f"Received: {schema!r}."
            )
        return Verdict(
            target=_take(document, "target", str),
            environment=_take(document, "environment", dict),
            runs=tuple(_decode_run(run) for run in _take(document, "runs", list)),
            seconds=_take_seconds(document),
            begun=_take_begun(document),
            options=_take(document, "options", dict) if "options" in document else {},
        )
    except _BROKEN as error:
        if isinstance(error, BadInputError):
            raise
        raise BadInputError(
            f"This is not a verdict: {_say_why(error)}. Expected the JSON that "
            "'distbench check --json FILE' writes."
        ) from error


def _say_why(error: Exception) -> str:
    """What is wrong with a document, without Python's name for it."""
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)


def _describe_run(run: Run, details: bool) -> dict[str, Any]:
    document = asdict(replace(run, details=None))
    del document["details"]
    if details and run.details is not None:
        document["details"] = details_to_json(run.details)
    return document


def _encode(value: Any) -> Any:  # walks any JSON document
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encode(item) for item in value]
    return value


def _take(document: Any, name: str, *kinds: type) -> Any:
    """A value that has to be there, and of a kind."""
    if not isinstance(document, dict):
        raise TypeError(f"an object was due, and not {type(document).__name__}")
    if name not in document:
        raise TypeError(f"it has no {name!r}")
    value = document[name]
    if not isinstance(value, kinds) or (bool not in kinds and isinstance(value, bool)):
        raise TypeError(
            f"{name!r} is no {' or '.join(kind.__name__ for kind in kinds)}"
        )
    return value


def _take_all(document: dict[str, Any], name: str, kind: type) -> tuple[Any, ...]:
    """A list that has to be there, of values of a kind."""
    values = _take(document, name, list)
    return tuple(_take({name: value}, name, kind) for value in values)


def _take_known(document: dict[str, Any], kind: type) -> dict[str, Any]:
    """The fields that are known: keys may be added under the same schema."""
    known = {known.name for known in fields(kind)}
    return {name: value for name, value in document.items() if name in known}


def _take_seconds(document: dict[str, Any]) -> float:
    """A time that need not be there."""
    if "seconds" not in document:
        return 0.0
    return float(_take(document, "seconds", int, float, str))


def _take_begun(document: dict[str, Any]) -> datetime | None:
    """When a check began: earlier releases did not say so. Without a zone it is UTC."""
    if document.get("begun") is None:
        return None
    begun = datetime.fromisoformat(_take(document, "begun", str))
    return begun.replace(tzinfo=begun.tzinfo or timezone.utc).astimezone(timezone.utc)


def _decode_number(value: Any) -> Any:
    return float(value) if value in ("inf", "-inf", "nan") else value


def _decode_outcome(document: dict[str, Any] | None) -> Outcome | None:
    if document is None:
        return None
    numbers = {name: _decode_number(document[name]) for name in _OUTCOME_NUMBERS}
    taken = _take_known(document, Outcome)
    return Outcome(**{**taken, **numbers, "element": tuple(document["element"])})


_OPTIONAL: tuple[tuple[str, type], ...] = (
    ("message", str),
    ("detail", str),
    ("workload", str),
    ("setup", dict),
    ("references", dict),
    ("quarantined", bool),
    ("disk_bytes", int),
)


def _decode_run(document: dict[str, Any]) -> Run:
    for name in ("scenario", "cluster", "path", "tier", "status"):
        _take(document, name, str)
    for name, kind in _OPTIONAL:
        if name in document:
            _take(document, name, kind)
    taken = _take_known(document, Run)
    taken["status"] = Status(taken["status"])
    taken["seconds"] = _take_seconds(taken)
    if taken.get("worst"):
        worst = _take_known(taken["worst"], Worst)
        worst["error_over_bound"] = float(_decode_number(worst["error_over_bound"]))
        taken["worst"] = Worst(**worst)
    taken["staleness"] = tuple(taken.get("staleness", ()))
    if taken.get("details"):
        taken["details"] = details_from_json(taken["details"])
    taken["findings"] = tuple(map(_decode_finding, taken.get("findings", ())))
    return Run(**taken)


def _decode_finding(document: dict[str, Any]) -> Finding:
    for name in ("code", "phase", "variable", "explanation"):
        _take(document, name, str)
    _take(document, "step", int)
    numbers = {name: _decode_number(document[name]) for name in _FINDING_NUMBERS}
    return Finding(
        **{
            **_take_known(document, Finding),
            **numbers,
            "replicas": _take_all(document, "replicas", int),
            "variables": _take_all({"variables": [], **document}, "variables", str),
            "outcome": _decode_outcome(document.get("outcome")),
        }
    )
