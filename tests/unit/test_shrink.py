"""Smaller scenarios, with checks that are played."""

from __future__ import annotations

import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest
from verdict_samples import make_finding, make_run, make_verdict

from distbench.cli import main
from distbench.errors import BadInputError, ClusterError
from distbench.options import CheckOptions
from distbench.scenario import Scenario
from distbench.shrink import make_start, name_options, shrink
from distbench.verdict import Status, Verdict
from distbench.verdict.document import verdict_from_json, verdict_to_json

WANTED = make_finding(code="missing-reduction", phase="reduced_gradient")
START = CheckOptions(
    clusters=("mwms:4",), workloads=("regularized",), tiers=("bounded",), steps=3
)


def fail(**changes) -> Verdict:
    return make_verdict(make_run(Status.FAIL, findings=(make_finding(**changes),)))


def list_tries(check, start: CheckOptions = START, tries: int = 20):
    return list(shrink(start, WANTED, check, tries))


def test_what_always_shows_gets_as_small_as_can_be():
    made = list_tries(lambda options: fail())
    assert all(one.shows for one in made)
    last = made[-1].options
    assert name_options(last) == "mirrored:2, linear, bounded, 1 step, 2 examples"
    assert len(made) == 5


def test_each_part_stays_as_large_as_the_finding_needs():
    def check(options: CheckOptions) -> Verdict:
        needs = (
            options.clusters[0].startswith("mwms"),
            options.workloads != ("linear",),
            options.steps > 1,
            options.examples in (0, 8),
        )
        return fail() if all(needs) else make_verdict(make_run())

    made = list_tries(check)
    shown = [one.options for one in made if one.shows]
    assert name_options(shown[-1]) == "mwms:2, embedding, bounded, 2 steps"
    assert {one.why for one in made if not one.shows} == {"pass"}


def test_an_asked_split_is_kept_as_long_as_the_cluster_has_as_many_replicas():
    start = replace(START, clusters=("mwms:3",), split=(8, 8, 0))
    made = list_tries(lambda options: fail(), start)
    assert made[0].options.split == (8, 8, 0)
    assert name_options(start).endswith("split 8,8,0")
    assert all(not one.options.split for one in made[1:])


def test_another_finding_does_not_count():
    def check(options: CheckOptions) -> Verdict:
        return fail() if options == START else fail(code="double-reduction")

    made = list_tries(check)
    assert [one.shows for one in made].count(True) == 1
    assert made[-1].why == "double-reduction in reduced_gradient"


def test_another_phase_does_not_count():
    made = list_tries(
        lambda o: fail(phase="reduced_gradient" if o == START else "slot")
    )
    assert [one.shows for one in made].count(True) == 1


def test_a_warning_before_it_is_passed_over():
    findings = (make_finding(code="lower-precision", warning=True), WANTED)
    made = list_tries(lambda o: make_verdict(make_run(Status.FAIL, findings=findings)))
    assert all(one.shows for one in made)


@pytest.mark.parametrize("error", [BadInputError("no"), ClusterError("no ports")])
def test_what_cannot_be_checked_does_not_show_it(error):
    def check(options: CheckOptions) -> Verdict:
        if options == START:
            return fail()
        raise error

    made = list_tries(check)
    assert [one.shows for one in made].count(True) == 1
    assert made[-1].why == str(error)


def test_what_does_not_come_again_is_tried_once():
    made = list_tries(lambda options: make_verdict(make_run()))
    assert [(one.shows, one.why) for one in made] == [(False, "pass")]


@pytest.mark.parametrize("tries", [1, 2, 4])
def test_no_more_checks_are_made_than_allowed(tries):
    made = list_tries(
        lambda o: fail() if o == START else make_verdict(make_run()), tries=tries
    )
    assert len(made) == tries


def test_a_restore_stays_one_of_another_state():
    start = CheckOptions(
        clusters=("mirrored:2",),
        tiers=("bounded",),
        restore_from="one",
        restore_after=1,
    )
    made = list_tries(lambda options: fail(), start)
    assert [one.options.first_steps for one in made] == [3, 2]


def test_a_fault_keeps_its_step():
    start = CheckOptions(
        clusters=("mirrored:2",), tiers=("bounded",), faults=("nan:replica:1@1",)
    )
    made = list_tries(lambda options: fail(), start)
    assert [one.options.first_steps for one in made] == [3, 2]


def test_a_cluster_that_lacks_who_a_fault_befalls_is_passed_over():
    start = CheckOptions(
        clusters=("mwms:4",),
        workloads=("regularized",),
        tiers=("bounded",),
        steps=1,
        faults=("nan:replica:3@0",),
    )
    made = list_tries(lambda options: fail(), start)
    assert [name_options(one.options) for one in made] == [
        "mwms:4, regularized, bounded, 1 step",
        "mwms:4, linear, bounded, 1 step",
        "mwms:4, linear, bounded, 1 step, 4 examples",
    ]


@pytest.mark.parametrize(("given", "asked"), [(120.0, None), (60.0, 60.0)])
def test_a_deadline_that_nobody_asked_for_is_as_patient_again(given, asked):
    scenario = Scenario(target="a.b:c", cluster="mwms:2", timeout_s=given)
    assert make_start(scenario, make_run()).timeout_s == asked


def test_one_device_saves_where_that_shows_it_too():
    start = CheckOptions(
        clusters=("ps:1+1",),
        tiers=("bounded",),
        steps=1,
        restore_from="ps:2+1",
        restore_partitioner="fixed:2",
    )
    made = list_tries(lambda options: fail(), start)
    assert [name_options(one.options) for one in made] == [
        "ps:1+1, bounded, 1 step, from ps:2+1",
        "ps:1+1, bounded, 1 step, from one",
    ]
    assert made[-1].options.restore_partitioner is None


def test_what_brings_its_own_data_keeps_its_examples():
    start = CheckOptions(clusters=("ps:4+2",), tiers=("bounded",), steps=1)
    made = list_tries(lambda options: fail(), start)
    assert [name_options(one.options) for one in made] == [
        "ps:4+2, bounded, 1 step",
        "ps:1+1, bounded, 1 step",
    ]


FLIGHT = CheckOptions(
    clusters=("ps:4+2",),
    workloads=("counting",),
    tiers=("exact",),
    steps=2,
    in_flight=8,
    partitioner="fixed:3",
)


def test_steps_in_flight_stay_in_flight():
    made = list_tries(lambda options: fail(), FLIGHT)
    assert [name_options(one.options) for one in made] == [
        "ps:4+2, counting, exact, 2 steps, 8 in flight, fixed:3",
        "ps:1+1, counting, exact, 2 steps, 8 in flight, fixed:3",
        "ps:1+1, counting, exact, 2 steps, 8 in flight",
        "ps:1+1, counting, exact, 2 steps, 2 in flight",
        "ps:1+1, counting, exact, 1 step, 2 in flight",
    ]


@pytest.mark.parametrize("lucky", [1, 2, 3, 4])
def test_a_race_gets_a_few_chances_to_show(lucky):
    checks = []

    def check(options: CheckOptions) -> Verdict:
        checks.append(options)
        return fail() if len(checks) == lucky else make_verdict(make_run())

    made = list_tries(check, FLIGHT, tries=4)
    assert [one.shows for one in made] == [
        number == lucky for number in range(1, len(made) + 1)
    ]
    assert len(made) == (4 if lucky < 4 else 3)


@pytest.fixture
def call(monkeypatch, capsys):
    def run(check, *words: str) -> tuple[int, str]:
        module = types.ModuleType("distbench.checking.check")
        module.check_target = check  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "distbench.checking.check", module)
        monkeypatch.setattr(sys, "argv", ["distbench", "shrink", *words])
        with pytest.raises(SystemExit) as stopped:
            main()
        seen = capsys.readouterr()
        return int(stopped.value.code or 0), seen.out + seen.err

    return run


SETUP = {
    "target": "a.b:make_c",
    "steps": 3,
    "dtype": "float64",
    "seed": 4,
    "keras": None,
    "jit": None,
    "restore_from": "",
    "timeout_s": 60.0,
    "examples": 0,
    "split": [5, 3],
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    run = make_run(
        Status.FAIL,
        findings=(WANTED,),
        setup=SETUP,
        cluster="mwms:2",
        path="none",
        workload="embedding",
    )
    file = tmp_path / "verdict.json"
    file.write_text(verdict_to_json(make_verdict(run)))
    return file


def test_ctrl_c_leaves_the_smallest_verdict_until_then(call, source, tmp_path):
    def check(target, options) -> Verdict:
        if options.clusters != ("mwms:2",):
            raise KeyboardInterrupt
        return make_verdict(make_run(Status.FAIL, findings=(WANTED,)))

    code, printed = call(check, str(source))
    assert code == 130
    assert "missing-reduction with mwms:2, embedding" in printed
    verdict_from_json((tmp_path / "verdict.small.json").read_text())


def test_the_command_writes_the_smallest_verdict(call, source, tmp_path):
    seen: list[CheckOptions] = []

    def check(target, options) -> Verdict:
        seen.append(options)
        assert target.describe() == "a.b:make_c"
        return make_verdict(
            make_run(Status.FAIL, findings=(WANTED,), message=name_options(options))
        )

    code, printed = call(check, str(source))
    assert code == 0, printed
    assert {(o.paths, o.dtype, o.seed) for o in seen} == {(("none",), "float64", 4)}
    small = verdict_from_json((tmp_path / "verdict.small.json").read_text())
    expected = "mirrored:2, linear, bounded, 1 step, 2 examples"
    assert small.runs[0].message == expected
    assert f"missing-reduction with {expected}" in printed

    code, printed = call(lambda target, options: make_verdict(make_run()), str(source))
    assert (code, "did not come again" in printed) == (4, True)
    code, printed = call(check, str(source), "--only", "x")
    assert (code, "No failed run has the id 'x'" in printed) == (2, True)
