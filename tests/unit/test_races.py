"""Whose fault a race is does not depend on whether it showed."""

from __future__ import annotations

import pytest
from verdict_samples import make_finding

from distbench.checking.origin import Control
from distbench.checking.races import find_race_origins
from distbench.verdict import Finding

LOST = make_finding(code="lost-update", phase="variable")
EXTRA = make_finding(code="extra-update", phase="variable")
ODD = make_finding(code="unexplained", phase="slot")
COUNTED = make_finding(code="iterations-wrong", phase="iterations")
FOUND = (EXTRA, COUNTED)


def settle(
    control: Control = Control(),  # noqa: B008  # it is frozen
    torn: tuple[str, ...] = (),
    alone: tuple[Finding, ...] = (),
    control_alone: tuple[Finding, ...] = (),
) -> str:
    """Whose fault an extra update and a wrong count are, each by its first letter."""
    found = find_race_origins(
        FOUND, torn, control, lambda: alone, lambda: control_alone
    )
    assert [f.code for f in found] == [f.code for f in FOUND]
    return "".join(f.origin[0] for f in found)


def shows(*findings: Finding, torn: tuple[str, ...] = ()) -> Control:
    return Control(findings={"bounded": findings}, torn=frozenset(torn))


@pytest.mark.parametrize(
    ("control", "origins"),
    [
        (shows(), "ss"),
        (shows(ODD), "fs"),
        (shows(LOST, COUNTED), "ff"),
        (shows(torn=("slot",)), "fs"),
        (shows(torn=("iterations",)), "sf"),
        (shows(torn=("iterations", "variable")), "ff"),
    ],
)
def test_a_race_that_the_controls_ops_allow_need_not_show(
    control: Control, origins: str
) -> None:
    """Of one that shows either outcome is the same fault."""
    assert settle(control) == origins


@pytest.mark.parametrize(
    ("torn", "origins"),
    [(("slot",), "ff"), (("variable",), "sf"), (("slot", "variable"), "sf")],
)
def test_what_the_subject_alone_leaves_open_is_its_own(
    torn: tuple[str, ...], origins: str
) -> None:
    assert settle(shows(ODD, COUNTED, torn=("slot",)), torn) == origins


def test_what_is_wrong_without_other_steps_is_no_race() -> None:
    control = shows(ODD, COUNTED, torn=("slot", "iterations"))
    assert settle(control, alone=(LOST,)) == "sf"
    assert settle(control, alone=(EXTRA,), control_alone=(EXTRA,)) == "ff"


def test_where_no_race_is_to_be_told_nothing_is_run_again() -> None:
    def refuse() -> tuple[Finding, ...]:
        raise AssertionError("run again")

    found = find_race_origins(FOUND, (), Control(), refuse, refuse)
    assert {f.origin for f in found} == {"subject"}
