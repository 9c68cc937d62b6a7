"""Commands that run nothing and tell something."""

from __future__ import annotations

import pytest

from distbench.cli.tell import SPECS
from distbench.cluster import ClusterSpec
from distbench.doctor import Check


def test_help_names_every_option_of_the_contract(call, capsys) -> None:
    assert call("check", "--help") == 0
    shown = capsys.readouterr().out
    names = """-c path tier steps workload dtype seed only keras jit expect
        require-gpus timeout engine json html junit tensorboard"""
    for option in names.split():
        assert (option if option.startswith("-") else f"--{option}") in shown


def test_explain_prints_the_whole_explanation(call, capsys) -> None:
    assert call("explain", "Mean-Of-Means") == 0
    shown = capsys.readouterr().out
    for part in ("Mathematics", "Typically wrong", "Right", "To confirm", "To fix"):
        assert part in shown
    assert "n_r" in shown


LISTED = {
    "scenarios": "aggregator-two-stage",
    "codes": "stale-read",
    "clusters": "ps:2+1",
}


@pytest.mark.parametrize("section", LISTED)
def test_list_prints_a_section(call, capsys, section: str) -> None:
    assert call("list", section) == 0
    shown = capsys.readouterr().out
    assert [name for name, part in LISTED.items() if part in shown] == [section]


def test_list_prints_all_sections(call, capsys) -> None:
    assert call("list") == 0
    shown = capsys.readouterr().out
    assert all(part in shown for part in LISTED.values())


def test_version(call, capsys) -> None:
    assert call("--version") == 0
    assert capsys.readouterr().out.startswith("distbench ")


@pytest.mark.parametrize(("ok", "code"), [(True, 0), (False, 3)], ids=["fit", "unfit"])
def test_the_doctor_names_what_is_missing(
    call, capsys, monkeypatch: pytest.MonkeyPatch, ok: bool, code: int
) -> None:
    checks = [
        Check(name="python", ok=True, found="3.11"),
        Check(name="ports", ok=ok, found="127.0.0.1"),
    ]
    monkeypatch.setattr("distbench.doctor.PROBES", (lambda: checks,))
    assert call("doctor") == code
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("ok  python")
    assert shown[1].startswith("ok  ports" if ok else "NO  ports")


@pytest.mark.parametrize("spec", SPECS)
def test_listed_clusters_are_valid(spec: str) -> None:
    assert str(ClusterSpec.parse(spec)) == spec
