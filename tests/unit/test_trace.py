"""Traces: on disk and back, and what can be asked of them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from distbench.errors import BadInputError
from distbench.trace import (
    INITIAL,
    SparseRows,
    Trace,
    TraceKey,
    VariableInfo,
    merge_traces,
)
from distbench.trace.dtypes import find_dtype, name_dtype
from distbench.trace.files import read_trace, write_trace
from distbench.trace.packing import Packer
from distbench.trace.shelf import LARGE_BYTES

KERNEL = VariableInfo(
    path="dense/kernel", role="variable", shape=(2, 3), dtype="float32"
)


def make_trace(values: dict, *, variables: tuple = (KERNEL,), **changes) -> Trace:
    settings = {"name": "mwms:2", "replicas": 2, "shards": (5, 3), **changes}
    return Trace(variables=variables, values=values, **settings)


def key(**changes) -> TraceKey:
    return TraceKey(**{"step": 0, "phase": "variable", "variable": "w", **changes})


# Those of TensorFlow, and what ml_dtypes has besides.
OWN = ["float16", "float32", "float64", "complex64", "complex128", "bool"]
OWN += [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
QUANTIZED = ["qint8", "quint8", "qint16", "quint16", "qint32"]
ADDED = sorted(
    name
    for name, kind in vars(ml_dtypes).items()
    if isinstance(kind, type) and issubclass(kind, np.generic)
)


@pytest.mark.parametrize("size", [2, LARGE_BYTES], ids=["packed", "shelved"])
@pytest.mark.parametrize("dtype", [*OWN, *QUANTIZED, *ADDED])
def test_an_array_comes_back_bit_by_bit(tmp_path: Path, dtype: str, size: int) -> None:
    kind = find_dtype(dtype)
    bits = np.arange(2 * size * kind.itemsize) % (2 if dtype == "bool" else 251)
    array = bits.astype(np.uint8).view(kind).reshape(2, size)
    assert name_dtype(array.dtype) == dtype
    trace = make_trace({key(): array}, notes={"jit": False})
    write_trace(trace, tmp_path, "reference")
    back = read_trace(tmp_path, "reference")
    found = back.values[key()]
    assert isinstance(found, np.ndarray)
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tobytes() == array.tobytes()
    assert back.variables == trace.variables
    assert (back.name, back.replicas, back.shards) == ("mwms:2", 2, (5, 3))
    assert back.notes == {"jit": False}


def test_not_finite_values_come_back(tmp_path: Path) -> None:
    array = np.array([np.inf, -np.inf, np.nan, -0.0], np.float32)
    write_trace(make_trace({key(): array}), tmp_path, "t")
    back = read_trace(tmp_path, "t").values[key()]
    assert isinstance(back, np.ndarray)
    assert back.tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=["f32", "bf16"])
def test_sparse_rows_keep_order_and_repetition(tmp_path: Path, dtype: type) -> None:
    rows = SparseRows(
        indices=np.array([2, 0, 2]),
        values=np.array([[1, 1], [2, 2], [3, 3]], dtype),
        shape=(4, 2),
    )
    write_trace(make_trace({key(): rows}), tmp_path, "t")
    back = read_trace(tmp_path, "t").values[key()]
    assert isinstance(back, SparseRows)
    assert back.indices.tolist() == [2, 0, 2]
    assert back.values.astype(np.float64).tolist() == [[1, 1], [2, 2], [3, 3]]
    assert back.to_dense().tolist() == [[2, 2], [0, 0], [4, 4], [0, 0]]
    assert back.count_rows().tolist() == [1, 0, 2, 0]


def test_an_empty_trace_and_a_scalar_come_back(tmp_path: Path) -> None:
    write_trace(make_trace({}), tmp_path, "empty")
    assert read_trace(tmp_path, "empty").steps == 0
    write_trace(make_trace({key(): np.asarray(3, np.int64)}), tmp_path, "scalar")
    assert read_trace(tmp_path, "scalar").values[key()] == 3


def test_a_file_of_another_schema_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"schema": "other"}')
    with pytest.raises(BadInputError, match="distbench/trace/3"):
        read_trace(tmp_path, "t")


def test_equal_contents_are_stored_once(tmp_path: Path) -> None:
    kept = np.arange(10_000.0)
    copies = {key(replica=r): kept.copy() for r in range(8)}
    others = {key(variable="o", replica=r): kept + r for r in range(1, 3)}
    write_trace(make_trace({**copies, **others}), tmp_path, "t")
    assert 3 * kept.nbytes < (tmp_path / "t.npz").stat().st_size < 4 * kept.nbytes
    back = read_trace(tmp_path, "t")
    for name, array in {**copies, **others}.items():
        np.testing.assert_array_equal(back.values[name], array, strict=True)


def test_zeros_of_another_sign_or_dtype_are_kept_apart(tmp_path: Path) -> None:
    values = {
        key(variable=f"{number}"): array
        for number, array in enumerate(
            [
                np.zeros(2, np.float32),
                -np.zeros(2, np.float32),
                np.zeros(2, np.int32),
                np.zeros((2, 1), np.float32),
                np.zeros((0, 3), np.float32),
            ]
        )
    }
    write_trace(make_trace(values), tmp_path, "t")
    back = read_trace(tmp_path, "t")
    for name, array in values.items():
        found = back.values[name]
        assert isinstance(found, np.ndarray)
        assert found.tobytes() == array.tobytes()
        np.testing.assert_array_equal(found, array, strict=True)


def test_what_is_no_number_is_bad_input(tmp_path: Path) -> None:
    strings = np.array([b"a"], object)
    with pytest.raises(BadInputError, match=r"keeps numbers.*Python objects"):
        write_trace(make_trace({key(): strings}), tmp_path, "t")


def test_writing_leaves_no_temporary_files(tmp_path: Path) -> None:
    write_trace(make_trace({key(): np.zeros(2)}), tmp_path, "t")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.json", "t.npz"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.json", b"no JSON"),
        ("t.json", b"[]"),
        ("t.json", b'{"schema": "distbench/trace/3"}'),
        ("t.npz", b"no archive"),
        ("t.npz", b""),
    ],
    ids=["no-json", "list", "no-index", "no-archive", "empty"],
)
def test_a_damaged_trace_is_bad_input(
    tmp_path: Path, name: str, content: bytes
) -> None:
    write_trace(make_trace({key(): np.zeros(2)}), tmp_path, "t")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInputError, match=r"cannot be read: .*Record the run again"):
        read_trace(tmp_path, "t")


def test_a_trace_that_would_run_code_is_bad_input(tmp_path: Path) -> None:
    write_trace(make_trace({key(): np.zeros(2)}), tmp_path, "t")
    harmful = np.array([Harmful(tmp_path / "harm")], dtype=object)
    np.savez(tmp_path / "t.npz", float64=harmful)
    with pytest.raises(BadInputError, match="cannot be read"):
        read_trace(tmp_path, "t")
    assert not (tmp_path / "harm").exists()


class Harmful:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self._path,)


def test_values_are_read_only() -> None:
    trace = make_trace({key(): np.zeros(2)})
    with pytest.raises(ValueError, match="read-only"):
        trace.values[key()][0] = 1  # type: ignore[index]


def test_selected_values_come_in_causal_order() -> None:
    keys = [
        key(step=0, phase="variable"),
        key(step=0, phase="slot"),
        key(step=0, phase="local_gradient", replica=1),
        key(step=0, phase="local_gradient", replica=0),
        key(step=INITIAL, phase="variable"),
    ]
    trace = make_trace({k: np.zeros(1) for k in keys})
    assert [k for k, _ in trace.select()] == keys[::-1]
    assert [k for k, _ in trace.select(phase="local_gradient", replica=1)] == [keys[2]]
    assert trace.steps == 1


def test_the_parts_of_all_tasks_are_joined() -> None:
    parts = [
        make_trace({key(replica=r): np.full(1, r)}, notes={f"task{r}": r})
        for r in range(2)
    ]
    whole = merge_traces("mwms:2", parts)
    assert {k.replica for k in whole.values} == {0, 1}
    assert whole.notes == {"task0": 0, "task1": 1}


def name_all(*paths: str) -> tuple[VariableInfo, ...]:
    return tuple(
        VariableInfo(path=path, role="variable", shape=(1,), dtype="float32")
        for path in paths
    )


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (
            ("a", "w_12", "m/w_12"),
            ("a", "w_13", "m/w_13"),
            "'w_12' in worker-0, 'w_13' in worker-1. Give a variable the same name",
        ),
        (("a", "b"), ("a",), "['b'] in worker-0, [] in worker-1, beside those of both"),
    ],
    ids=["names", "number"],
)
def test_parts_with_other_variables_are_refused(
    first: tuple[str, ...], second: tuple[str, ...], words: str
) -> None:
    parts = [
        replace(make_trace({}, variables=name_all(*paths)), name=f"worker-{number}")
        for number, paths in enumerate((first, second))
    ]
    with pytest.raises(BadInputError, match=re.escape(words)):
        merge_traces("mwms:2", parts)


def test_parts_may_have_their_variables_in_another_order() -> None:
    parts = [make_trace({}, variables=name_all(*paths)) for paths in ("ab", "ba")]
    assert merge_traces("mwms:2", parts).variables == name_all("a", "b")
    wide = replace(name_all("a")[0], shape=(2,))
    parts[1] = make_trace({}, variables=(*name_all("b"), wide))
    with pytest.raises(BadInputError, match="do not hold the same variables"):
        merge_traces("mwms:2", parts)


@pytest.mark.parametrize(
    ("path", "of", "kind"),
    [
        ("Adam/dense/kernel/momentum", "dense/kernel", "Adam/*/momentum"),
        ("Adam/m/momentum", "m", "Adam/*/momentum"),
        ("Adam/m/m", "m", "Adam/*/m"),
        ("momentum/m", "m", "momentum/*"),
        ("kernel_velocity", "kernel", "*_velocity"),
        ("m_momentum", "m", "*_momentum"),
        ("adam/dense_kernel_momentum", "dense/kernel", "adam/*_momentum"),
        ("momentum/w_1", "w", "momentum/*_1"),
        ("momentum/row", "o", "momentum/row"),
        ("velocity/0", "kernel", "velocity/0"),
        ("scale", "", "scale"),
    ],
)
def test_a_kind_of_slots_is_their_path_without_that_of_the_variable(
    path: str, of: str, kind: str
) -> None:
    info = VariableInfo(path=path, role="slot", shape=(), dtype="float32", of=of)
    assert info.kind == kind


@pytest.mark.parametrize(
    ("gradients", "overflowing"),
    [
        ((1.0, 2.0), ()),
        ((1.0, np.inf), (1,)),
        ((np.nan, 2.0), (0,)),
        ((np.nan, np.inf), ()),
    ],
    ids=["none", "second", "first", "all"],
)
def test_replicas_overflow_by_themselves_where_another_does_not(
    gradients: tuple[float, ...], overflowing: tuple[int, ...]
) -> None:
    """Where all do, one device does as well: it is no fault of a replica's."""
    values = {
        key(phase="local_gradient", replica=replica): np.array([gradient, 1.0])
        for replica, gradient in enumerate(gradients)
    }
    trace = make_trace(values)
    assert trace.find_overflowing(0) == overflowing
    assert trace.find_overflowing(1) == ()


@pytest.mark.parametrize("part", ["npz", "json"])
def test_a_trace_that_is_not_written_to_its_end_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def fill_disk(path: Path) -> None:
        path.write_bytes(b"half of")
        raise OSError("No space left on device")

    write_trace(make_trace({key(): np.ones(2)}), tmp_path, "t")
    if part == "npz":
        monkeypatch.setattr(Packer, "write", lambda _, path: fill_disk(path))
    else:
        monkeypatch.setattr(Path, "write_text", lambda path, _: fill_disk(path))
    with pytest.raises(OSError, match="No space left"):
        write_trace(make_trace({key(): np.ones(2)}), tmp_path, "t")
    np.testing.assert_array_equal(read_trace(tmp_path, "t").values[key()], np.ones(2))
