"""Traces as files.

A trace lies on disk as `NAME.npz` (the arrays, not pickled) and `NAME.json` (what each
array is). Both are written under a temporary name and renamed, so a reader sees a whole
trace or none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
import numpy.typing as npt

from distbench.errors import BadInputError
from distbench.trace import (
    MetricInfo,
    SparseRows,
    Trace,
    TraceKey,
    Value,
    VariableInfo,
)

SCHEMA = "distbench/trace/1"
"""What a trace's JSON says that it is."""


def write_trace(trace: Trace, folder: Path, stem: str) -> None:
    """Write `stem.npz` and `stem.json` into a folder."""
    arrays: dict[str, npt.NDArray[np.generic]] = {}
    index: list[dict[str, object]] = []
    for number, key in enumerate(sorted(trace.values, key=lambda key: key.order)):
        value = trace.values[key]
        entry: dict[str, object] = {"key": asdict(key)}
        if isinstance(value, SparseRows):
            entry["shape"] = list(value.shape)
            arrays[f"{number}.indices"] = value.indices
        array = value.values if isinstance(value, SparseRows) else value
        entry["dtype"] = array.dtype.name
        arrays[f"{number}.values"] = _to_plain(array)
        index.append(entry)
    _write_renamed(folder / f"{stem}.npz", lambda path: _save_npz(path, arrays))
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


def _read(folder: Path, stem: str) -> Trace:
    header = json.loads((folder / f"{stem}.json").read_text())
    if header.get("schema") != SCHEMA:
        raise BadInputError(
            f"Trace '{folder / stem}.json' has another format. Expected schema "
            f"{SCHEMA!r}. Received: {header.get('schema')!r}."
        )
    values: dict[TraceKey, Value] = {}
    notes = dict(header["notes"])
    with (
        (folder / f"{stem}.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as arrays,
    ):
        for number, entry in enumerate(header["index"]):
            array = _from_plain(arrays[f"{number}.values"], entry["dtype"])
            if (entry["key"]["phase"], entry["key"]["variable"]) == ("loss", ""):
                notes["loss_dtype"] = entry["dtype"]
            if "shape" in entry:
                values[TraceKey(**entry["key"])] = SparseRows(
                    indices=arrays[f"{number}.indices"],
                    values=array,
                    shape=tuple(entry["shape"]),
                )
            else:
                values[TraceKey(**entry["key"])] = array
    return Trace(
        name=header["name"],
        replicas=header["replicas"],
        shards=tuple(header["shards"]),
        variables=tuple(
            VariableInfo(**{**v, "shape": tuple(v["shape"])})
            for v in header["variables"]
        ),
        values=values,
        notes=notes,
        metrics=tuple(
            MetricInfo(name=m["name"], state=tuple(m["state"]))
            for m in header["metrics"]
        ),
        # What an older distbench wrote has one size for all steps.
        resized={
            int(step): tuple(shards)
            for step, shards in header.get("resized", {}).items()
        },
    )


def _to_plain(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """NumPy's file format has no bfloat16: its bits travel as integers."""
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


def _from_plain(array: npt.NDArray[np.generic], dtype: str) -> npt.NDArray[np.generic]:
    if dtype != "bfloat16":
        return array
    # A bfloat16 is the upper half of a float32, so widening it is exact.
    return (array.astype(np.uint32) << 16).view(np.float32)


def _save_npz(path: Path, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
    with path.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # keyword is allow_pickle


def _write_renamed(path: Path, write: Callable[[Path], object]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    write(temporary)
    temporary.replace(path)
