"""The gradients of the workloads are what the specification says."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.cluster

WORKLOADS = ("linear", "mlp", "large", "embedding", "regularized", "constrained")
DTYPES = ("float32", "float16", "bfloat16", "float64")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    out = tmp_path_factory.mktemp("workloads") / "results"
    program = Path(__file__).with_name("workloads_program.py")
    done = subprocess.run(
        [sys.executable, program, out], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return pickle.loads(out.read_bytes())


def to_dense(gradient, shape):
    if not isinstance(gradient, tuple):
        return gradient
    dense = np.zeros(shape)
    np.add.at(dense, gradient[0], gradient[1].astype(np.float64))
    return dense


@pytest.mark.parametrize("name", WORKLOADS)
def test_shards_sum_to_the_global_gradient(results, name):
    taken = results["mirrored"][name]
    for parts, whole in zip(taken["local"], taken["whole"], strict=True):
        if whole is None:
            continue
        dense = to_dense(whole, (24, 4))
        total = sum(to_dense(p, dense.shape).astype(np.float64) for p in parts)
        # Loose: it tells a sum from a mean, not one order of addition from another.
        np.testing.assert_allclose(total, dense, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", WORKLOADS)
def test_replicas_have_unequal_gradients(results, name):
    for parts in results["mirrored"][name]["local"][1:]:
        if parts != [None]:
            first, second = (to_dense(p, (24, 4)) for p in parts)
            assert not np.array_equal(first, second)


@pytest.mark.parametrize("name", WORKLOADS)
def test_data_repeats_and_changes_with_the_step(results, name):
    first, second, again = results["data"][name]
    for a, b, c in zip(first, second, again, strict=True):
        assert a.shape[0] == b.shape[0] == 8
        np.testing.assert_array_equal(a, c)
        assert not np.array_equal(a, b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_linear_is_bitwise_equal_in_any_order(results, dtype):
    assert results["proofs"][dtype, 8]
    taken = results["linear"][dtype]
    orders = [np.random.default_rng(seed).permutation(8) for seed in range(50)]
    for position, whole in enumerate(taken["whole"]):
        for order in orders:
            singles = [taken["singles"][i][position] for i in order]
            for parts in (singles, pair_up(singles)):
                total = list(itertools.accumulate(parts))[-1]
                assert total.dtype == whole.dtype
                np.testing.assert_array_equal(total, whole)


def pair_up(values):
    return [values[i] + values[i + 1] for i in range(0, len(values), 2)]


def test_other_workloads_round(results):
    taken = results["mirrored"]["mlp"]
    pairs = zip(taken["local"], taken["whole"], strict=True)
    assert any(not np.array_equal(sum(p), whole) for p, whole in pairs)
    assert not results["proofs"]["mlp", 8]


@pytest.mark.parametrize(
    ("dtype", "examples", "proven"),
    [
        pytest.param("float32", 128, True, id="float32"),
        pytest.param("float32", 1024, True, id="float32-large"),
        pytest.param("float32", 6, False, id="not-a-power-of-two"),
        pytest.param("float16", 128, True, id="float16"),
        pytest.param("float16", 1024, False, id="float16-too-large"),
        pytest.param("bfloat16", 16, True, id="bfloat16"),
        pytest.param("bfloat16", 128, False, id="bfloat16-too-large"),
    ],
)
def test_exactness_is_proven_only_where_it_holds(results, dtype, examples, proven):
    assert results["proofs"][dtype, examples] is proven


@pytest.mark.parametrize("dtype", DTYPES)
def test_linear_gradient_is_large_enough_to_be_clipped(results, dtype):
    gradients = results["linear"][dtype]["whole"][1:]
    assert sum(np.sum(np.float64(g) ** 2) for g in gradients) > 1


def test_embedding_gradient_is_sparse_with_shared_and_repeated_rows(results):
    taken = results["mirrored"]["embedding"]
    parts = taken["local"][1 + taken["names"].index("table:0")]
    rows = [part[0] for part in parts]
    for indices in rows:
        assert (np.bincount(indices)[:2] >= 1).all()
        assert np.bincount(indices)[0] >= 2
        assert indices.max() < 18


def test_unused_variable_has_no_gradient(results):
    taken = results["mirrored"]["constrained"]
    nones = [gradient is None for gradient in taken["whole"]]
    assert nones == [False, False, True, False]
    assert taken["local"][2] == [None]
