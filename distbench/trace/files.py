"""Traces as files.

A trace lies on disk as `NAME.npz` (the arrays, not pickled) and `NAME.json` (what each
array is). Both are written under a temporary name and renamed, so a reader sees a whole
trace or none. Large arrays are files of their own in the folder `arrays`, which are
written before and read when they are asked for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from distbench.errors import BadInputError
from distbench.trace import (
    MetricInfo,
    SparseRows,
    Trace,
    TraceKey,
    VariableInfo,
)
from distbench.trace.packing import Packer, Place, Unpacker
from distbench.trace.shelf import ARRAYS, Array, Shelf, Shelved
from distbench.trace.values import Held, Values

SCHEMA = "distbench/trace/3"
"""What a trace's JSON says that it is."""
_KEY = tuple(field.name for field in fields(TraceKey))
_PARTS = ("rows", "values")


def write_trace(trace: Trace, folder: Path, stem: str) -> None:
    """Write `stem.npz` and `stem.json` into a folder, and large arrays beside them."""
    packer, shelf = Packer(), Shelf(folder)

    def place(array: Array | Shelved) -> Place:
        held = shelf.adopt(array) if isinstance(array, Shelved) else shelf.put(array)
        if not isinstance(held, Shelved):
            return packer.add(held)
        shape = list(held.shape)
        return {"dtype": held.dtype, "digest": held.path.name, "shape": shape}

    values = Values(trace.values).held
    index: list[dict[str, object]] = []
    for key in sorted(values, key=lambda key: key.order):
        value = values[key]
        entry: dict[str, object] = {name: getattr(key, name) for name in _KEY}
        if isinstance(value, SparseRows):
            entry["rows"] = place(value.indices)
            entry["dense_shape"] = list(value.shape)
            entry["values"] = place(value.values)
        else:
            entry["values"] = place(value)
        index.append(entry)
    _write_renamed(folder / f"{stem}.npz", packer.write)
    header = {
        "schema": SCHEMA,
        "name": trace.name,
        "replicas": trace.replicas,
        "shards": list(trace.shards),
        "resized": {str(step): list(trace.resized[step]) for step in trace.resized},
        "variables": [asdict(v) for v in trace.variables],
        "notes": dict(trace.notes),
        "metrics": [asdict(metric) for metric in trace.metrics],
        "index": index,
    }
    text = json.dumps(header)
    _write_renamed(folder / f"{stem}.json", lambda path: path.write_text(text))


def read_trace(folder: Path, stem: str) -> Trace:
    """Read what `write_trace` wrote. Executes nothing: no array is unpickled.

    Raises:
        BadInputError: The file is of another schema, damaged, or not there.
    """
    try:
        return _read(folder, stem)
    except BadInputError:
        raise
    except Exception as error:  # damage may show anywhere in zipfile, zlib and NumPy
        raise BadInputError(
            f"'{folder / stem}.json' and .npz cannot be read: {type(error).__name__}: "
            f"{error}. Expected: files that distbench wrote. Record the run again."
        ) from error


def list_files(folder: Path, stem: str) -> list[Path]:
    """The files of a trace that `write_trace` wrote, its large arrays included."""
    header = json.loads((folder / f"{stem}.json").read_text())
    places = [entry.get(part, {}) for entry in header["index"] for part in _PARTS]
    digests = {place["digest"] for place in places if "digest" in place}
    own = [folder / f"{stem}.json", folder / f"{stem}.npz"]
    return own + [folder / ARRAYS / digest for digest in sorted(digests)]


def _read(folder: Path, stem: str) -> Trace:
    header = json.loads((folder / f"{stem}.json").read_text())
    if header.get("schema") != SCHEMA:
        raise BadInputError(
            f"Trace '{folder / stem}.json' has another format. Expected schema "
            f"{SCHEMA!r}. Received: {header.get('schema')!r}."
        )
    values: dict[TraceKey, Held] = {}
    notes = dict(header["notes"])
    arrays = Unpacker(folder / f"{stem}.npz")
    shelf = Shelf(folder)

    def find(place: Mapping[str, Any]) -> Array | Shelved:
        if "digest" not in place:
            return arrays.take(place)
        return shelf.find(place["digest"], place["dtype"], tuple(place["shape"]))

    def read(place: Mapping[str, Any]) -> Array:
        array = find(place)
        return array.read() if isinstance(array, Shelved) else array

    for entry in header["index"]:
        key = TraceKey(**{name: entry[name] for name in _KEY})
        if (key.phase, key.variable) == ("loss", ""):
            notes["loss_dtype"] = entry["values"]["dtype"]
        if "rows" in entry:
            values[key] = SparseRows(
                indices=read(entry["rows"]),  # type: ignore[arg-type]  # int64
                values=read(entry["values"]),
                shape=tuple(entry["dense_shape"]),
            )
        else:
            values[key] = find(entry["values"])
    return Trace(
        name=header["name"],
        replicas=header["replicas"],
        shards=tuple(header["shards"]),
        variables=tuple(
            VariableInfo(**{**v, "shape": tuple(v["shape"])})
            for v in header["variables"]
        ),
        values=Values(values),
        notes=notes,
        metrics=tuple(
            MetricInfo(name=m["name"], state=tuple(m["state"]))
            for m in header["metrics"]
        ),
        resized={
            int(step): tuple(shards) for step, shards in header["resized"].items()
        },
    )


def _write_renamed(path: Path, write: Callable[[Path], object]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    write(temporary)
    temporary.replace(path)
