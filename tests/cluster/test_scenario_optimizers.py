"""The optimizers of the scenarios do what their docstrings say, under each strategy."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

OPTIMIZERS = ("sgd", "momentum", "adam", "adamw", "averaged_sgd", "lazy_adam")
U = 2.0**-24  # unit roundoff of float32
STEPS = 3


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    out = tmp_path_factory.mktemp("optimizers") / "results"
    program = Path(__file__).with_name("optimizers_program.py")
    done = subprocess.run(
        [sys.executable, program, out],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert done.returncode == 0, done.stderr
    return pickle.loads(out.read_bytes())


def find(taken, part, step=STEPS - 1):
    """The value of the first variable whose name ends so, on the first replica."""
    return next(v for name, v in taken.items() if name.endswith(part))[step][0]


@pytest.mark.parametrize("kind", ["mirrored", "central"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_strategy_gives_the_bits_of_one_device(results, kind, name):
    one, many = results["one", name], results[kind, name]
    assert list(one) == list(many)
    for variable, steps in many.items():
        for step, copies in enumerate(steps):
            assert len(copies) == (2 if kind == "mirrored" else 1)
            for copy in copies:
                np.testing.assert_array_equal(copy, one[variable][step][0])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_unused_variable_gets_no_slot(results, name):
    named = [path for path in results["one", name] if "unused" in path]
    assert named == ["unused"]
    np.testing.assert_array_equal(find(results["one", name], "unused"), np.ones(2))


@pytest.mark.parametrize(
    ("kind", "name", "stock", "parts"),
    [
        pytest.param("dense", "sgd", "stock-sgd", ["kernel", "table"], id="sgd"),
        pytest.param(
            "dense", "sgd-decay", "stock-sgd-decay", ["kernel", "table"], id="sgd-decay"
        ),
        # Keras' sparse momentum is lazy, so only its dense rule is a reference.
        pytest.param(
            "dense", "momentum", "stock-momentum", ["kernel", "table"], id="momentum"
        ),
        pytest.param(
            "one",
            "adamw-without-decay",
            "stock-adam",
            ["kernel", "table", "kernel/m", "table/v"],
            id="adamw-without-decay",
        ),
        pytest.param(
            "one", "averaged_sgd", "stock-sgd", ["kernel", "table"], id="averaged"
        ),
        pytest.param(
            "dense", "lazy_adam", "stock-adam", ["table", "table/v"], id="lazy-dense"
        ),
    ],
)
def test_equals_the_stock_optimizer_bitwise(results, kind, name, stock, parts):
    for part in parts:
        for step in range(STEPS):
            ours = find(results[kind, name], part, step)
            np.testing.assert_array_equal(
                ours, find(results[kind, stock], part, step), err_msg=part
            )


@pytest.mark.parametrize("variable", ["kernel", "table"])
def test_adam_equals_the_stock_one_within_rounding(results, variable):
    """The stock kernel writes m += (g - m)(1 - beta_1), we m beta_1 + g (1 - beta_1).

    Each value of m passes at most 4 roundings a step, so that either result is off by
    at most gamma_4T times the sum of its terms' sizes (Higham 2002, section 4.2), and
    v, whose terms are positive, by that share of itself. The step alpha m / sqrt(v)
    adds 8 roundings, and the subtraction one of the variable.
    """
    ours, stock = results["one", "adam"], results["one", "stock-adam"]
    gamma = 4 * STEPS * U / (1 - 4 * STEPS * U)
    m_sizes = np.zeros_like(find(stock, variable), dtype=np.float64)
    drift = np.zeros_like(m_sizes)
    before = np.zeros_like(m_sizes)
    for step in range(STEPS):
        m, v = (np.float64(find(stock, f"{variable}/{s}", step)) for s in "mv")
        m_sizes = 0.9 * m_sizes + np.abs(m - 0.9 * before) + 4 * U * np.abs(m)
        before = m
        assert_within(find(ours, f"{variable}/m", step), m, 2 * gamma * m_sizes)
        assert_within(find(ours, f"{variable}/v", step), v, 2 * gamma * v)
        alpha = 0.01 * np.sqrt(1 - 0.999 ** (step + 1)) / (1 - 0.9 ** (step + 1))
        scale = alpha / (np.sqrt(v) + 1e-7)
        drift += 2 * scale * (gamma * m_sizes + (gamma + 8 * U) * np.abs(m))
        theirs = find(stock, variable, step)
        drift += 2 * U * np.abs(theirs)
        assert_within(find(ours, variable, step), theirs, drift)


def assert_within(received, expected, bound):
    assert (np.abs(np.float64(received) - expected) <= bound).all()


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_sparse_gradient_does_what_a_dense_one_does(results, name):
    for variable, steps in results["one", name].items():
        np.testing.assert_array_equal(
            steps[-1][0], find(results["dense", name], variable)
        )


def test_adamw_decays_by_its_formula_and_spares_excluded_variables(results):
    left = results["decay alone"]
    # Each step rounds the product twice and the difference once.
    expected = (1 - 0.01 * 0.1) ** STEPS
    np.testing.assert_allclose(left["kernel:0"], expected, rtol=2 * STEPS * U)
    np.testing.assert_array_equal(left["bias:0"], 1.0)
    decayed = find(results["one", "adamw"], "kernel")
    plain = find(results["one", "adamw-without-decay"], "kernel")
    assert not np.array_equal(decayed, plain)


@pytest.mark.parametrize("variable", ["kernel", "table"])
def test_average_follows_the_variable(results, variable):
    taken = results["one", "averaged_sgd"]
    rng = np.random.default_rng(0)
    initial = {"kernel": rng.normal(size=(4, 3)), "table": rng.normal(size=(8, 3))}
    before = np.float64(initial[variable].astype(np.float32))
    for step in range(STEPS):
        value = np.float64(find(taken, variable, step))
        after = find(taken, f"{variable}/average", step)
        # 1 - 0.9 is off by 2 U relatively; then come three operations.
        bound = 8 * U * (np.abs(before) + np.abs(value))
        assert_within(after, before - 0.1 * (before - value), bound)
        before = np.float64(after)


def test_average_sees_the_constrained_variable(results):
    value, average = results["constraint"]
    assert value == 0.0
    assert average == pytest.approx(0.45, rel=8 * U)


def test_lazy_adam_moves_touched_rows_as_adam_and_leaves_others(results):
    lazy, adam = results["one", "lazy_adam"], results["one", "stock-adam"]
    for part in ("table", "table/m", "table/v"):
        first = find(lazy, part, 0)
        moved = np.abs(find(adam, "table/m", 0)).any(axis=1)
        assert moved.any()
        assert not moved.all()
        np.testing.assert_array_equal(first[moved], find(adam, part, 0)[moved])
        # Rows 6 and 7 are in no gradient, row 0 in that of the first step only.
        np.testing.assert_array_equal(find(lazy, part, 2)[6:], first[6:])
    assert not np.array_equal(find(lazy, "table"), find(adam, "table"))


@pytest.mark.parametrize(
    "name", [*OPTIMIZERS, "sgd-decay", "adamw-without-decay", "stock-adam"]
)
def test_config_survives_the_round_trip(results, name):
    config, again = results["config", name]
    assert again == config
    assert "learning_rate" in config
