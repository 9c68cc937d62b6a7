"""Who has XLA compile the ops of a step, which keeps other bits than op by op."""

from __future__ import annotations

import pytest

from distbench.checking.plan import plan_scenarios
from distbench.machine import Machine
from distbench.options import CheckOptions
from distbench.xla import compiles_ops, find_jit, tell_compiled

ON_CPUS = "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"


@pytest.mark.parametrize(
    ("flags", "cpu", "gpu"),
    [
        ("", False, False),
        ("--tf_xla_cpu_global_jit", False, False),
        ("--tf_xla_auto_jit=2", False, True),
        (ON_CPUS, True, True),
        ("--tf_xla_cpu_global_jit=true --tf_xla_auto_jit=fusible", True, True),
        ("--tf_xla_cpu_global_jit=false --tf_xla_auto_jit=1", False, True),
        ("--tf_xla_auto_jit=single-gpu(2) --tf_xla_cpu_global_jit", False, True),
        ("--tf_xla_auto_jit=0 --tf_xla_cpu_global_jit", False, False),
        (f"{ON_CPUS} --tf_xla_auto_jit=-1", False, False),
    ],
)
def test_flags_say_where_xla_compiles(flags: str, cpu: bool, gpu: bool) -> None:
    assert compiles_ops(flags, "cpu") == cpu
    assert compiles_ops(flags, "gpu") == gpu


def test_what_is_asked_for_counts_more_than_flags() -> None:
    assert find_jit(None, ON_CPUS, "cpu") is True
    assert find_jit(None, "", "cpu") is None
    assert find_jit(False, ON_CPUS, "cpu") is False
    assert find_jit(True, "", "cpu") is True


def test_a_scenario_tells_that_flags_compile_it() -> None:
    machine = Machine(gpus=0, cores=4, memory_bytes=1 << 34)
    options = CheckOptions(clusters=("ps:2+1",), workloads=("linear",))
    for flags, jit in ((ON_CPUS, True), ("", None)):
        [item] = plan_scenarios("a:b", "optimizer", options, machine, xla_flags=flags)
        assert item.scenario.jit is jit


def test_a_refusal_names_who_has_xla_compile() -> None:
    own = {"variables": {"TF_XLA_FLAGS": ON_CPUS}}
    benchs = {"variables": {"TF_XLA_FLAGS": "--tf_xla_cpu_global_jit"}}
    assert tell_compiled(None, "cpu", own) == ""
    assert tell_compiled(True, "cpu", own).startswith(f"TF_XLA_FLAGS ({ON_CPUS}) has")
    assert tell_compiled(True, "cpu", benchs).startswith("'jit=True' has")
    assert "'jit=False' leaves it out" in tell_compiled(True, "cpu", {})
