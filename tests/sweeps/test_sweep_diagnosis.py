"""The judge over grids of seeds, dtypes and numbers of replicas."""

from __future__ import annotations

import pytest
from judged_runs import (
    UNUSUAL_IDS,
    UNUSUAL_RUNS,
    check_millionth_caught,
    check_no_false_alarm,
    check_unusual_passes,
)
from planted_case import check_named, check_passed, run_case
from planted_faults import CASES, SETUPS
from training_simulator import BIAS, KERNEL, observe

from distbench.diagnose.judge import judge


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_planted_fault_is_named(case):
    check_named(case, run_case(case))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_planted_fault_is_named_once_for_all_steps(case):
    check_named(case, run_case(case, steps=2))


@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: "-".join(setup) or "plain")
def test_the_same_run_without_the_fault_passes(setup):
    check_passed(judge(observe(**setup)))


@pytest.mark.parametrize(("name", "tier"), UNUSUAL_RUNS, ids=UNUSUAL_IDS)
def test_correct_but_unusual_programs_pass(name, tier):
    check_unusual_passes(name, tier, steps=2)


@pytest.mark.parametrize("replicas", [2, 5])
@pytest.mark.parametrize("seed", range(24))
def test_correct_runs_raise_no_false_alarm(seed, replicas):
    check_no_false_alarm(seed=seed, replicas=replicas)


@pytest.mark.parametrize("replicas", [2, 3, 8])
@pytest.mark.parametrize("path", [KERNEL, BIAS])
def test_a_factor_of_one_millionth_is_caught(path, replicas):
    check_millionth_caught(path, replicas=replicas, steps=2)
