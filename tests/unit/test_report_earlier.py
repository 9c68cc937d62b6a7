"""What a report takes the place of: an earlier one of its kind, and nothing else."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from failed_runs import make_failed
from played_checks import answer, raise_
from verdict_samples import make_run, make_verdict

from distbench.cli.check import check
from distbench.errors import BadInputError
from distbench.options import CheckOptions
from distbench.report.earlier import (
    MATRIX,
    PAGE,
    SCRIPT,
    VERDICT,
    Kind,
    check_report,
)
from distbench.report.forms import FORMS, Reports
from distbench.report.page import verdict_to_html
from distbench.repro.case import pick_case
from distbench.repro.script import write_script
from distbench.selftest.matrix import score_to_json
from distbench.selftest.score import Score
from distbench.verdict.document import verdict_to_json

FAILED = make_verdict(make_failed())
WRITTEN: dict[str, tuple[Kind, Callable[[], str]]] = {
    **{
        name: (form.kind, partial(form.write, FAILED, CheckOptions()))
        for name, form in FORMS.items()
    },
    "selftest": (MATRIX, lambda: score_to_json(Score(faults=(), unusual=()))),
    "repro": (SCRIPT, lambda: write_script(pick_case(FAILED), FAILED.environment)),
}
NOTES = "# Notes\n\nNobody has these twice.\n"


@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_a_report_can_be_asked_for(name: str) -> None:
    assert name in inspect.signature(check).parameters
    assert Reports(**{name: Path("place")}).files == {name: Path("place")}


def test_a_page_of_many_targets_is_known_by_its_beginning(tmp_path: Path) -> None:
    place = tmp_path / "page.html"
    verdict = make_verdict(make_run(), target=", ".join(["a.py:b"] * 20_000))
    place.write_text(verdict_to_html(verdict, CheckOptions()))
    check_report(place, PAGE, {})


@pytest.mark.parametrize("name", WRITTEN)
def test_an_earlier_report_of_its_kind_alone_is_replaced(
    tmp_path: Path, name: str
) -> None:
    kind, write = WRITTEN[name]
    place = tmp_path / "place"
    for text in ("", "\n", write()):
        place.write_text(text)
        check_report(place, kind, {})
    others = [write for other, write in WRITTEN.values() if other is not kind]
    for text in (NOTES, "{}", "\0", *(other() for other in others)):
        place.write_text(text)
        with pytest.raises(BadInputError, match=f"is no earlier {kind.name}"):
            check_report(place, kind, {})


@pytest.mark.parametrize("name", ["train.py", "link.json"])
def test_python_source_is_no_place_for_a_verdict(tmp_path: Path, name: str) -> None:
    (tmp_path / "link.json").symlink_to(tmp_path / "train.py")
    with pytest.raises(BadInputError, match=r"Python source.* not end in '\.py'"):
        check_report(tmp_path / name, VERDICT, {})
    check_report(tmp_path / "train.py", SCRIPT, {})


def test_what_a_command_reads_it_does_not_replace(tmp_path: Path) -> None:
    file = tmp_path / "known.ini"
    file.write_text("")
    with pytest.raises(BadInputError, match="is the quarantine list, which a verdict"):
        check_report(
            file, VERDICT, {"the quarantine list": tmp_path / "x/../known.ini"}
        )


def test_a_device_holds_nothing_that_is_lost() -> None:
    check_report(Path("/dev/null"), VERDICT, {})


@pytest.mark.parametrize("option", ["--json", "--html", "--junit"])
@pytest.mark.parametrize("name", ["mine.py", "notes.txt", "known.ini"])
def test_a_check_refuses_a_mistyped_name_before_it_touches_anything(
    play, call, capsys, tmp_path: Path, option: str, name: str
) -> None:
    play(raise_(AssertionError("it was checked")))
    for file in ("mine.py", "notes.txt", "known.ini"):
        (tmp_path / file).write_text("")
    (tmp_path / name).write_text(NOTES)
    words = ("--quarantine", f"{tmp_path}/known.ini", option, f"{tmp_path}/{name}")
    assert call("check", f"{tmp_path}/mine.py:make", *words) == 2
    told = capsys.readouterr().err
    assert re.search("is the file of TARGET|is no earlier|is the quarantine list", told)
    assert told.count("\n") == 1
    assert (tmp_path / name).read_text() == NOTES


def test_bad_usage_loses_no_earlier_report(play, call, tmp_path: Path) -> None:
    """As where the attribute is mistyped, which shows once the file is imported."""
    place = tmp_path / "verdict.json"
    place.write_text(verdict_to_json(FAILED))
    play(raise_(BadInputError("no such attribute")))
    assert call("check", "a.b:c", "--json", str(place)) == 2
    assert place.read_text() == verdict_to_json(FAILED)
    assert list(tmp_path.iterdir()) == [place]


def test_no_earlier_report_is_there_while_a_check_runs(
    play, call, tmp_path: Path
) -> None:
    """Not even where the bench is killed: nobody is to take it for the new one."""
    place = tmp_path / "verdict.json"
    place.write_text(verdict_to_json(FAILED))
    seen = []
    passed = answer(make_run())

    def check_target(*asked: object) -> object:
        seen.append(place.exists())
        return passed(*asked)

    play(check_target)
    assert call("check", "a.b:c", "--json", str(place)) == 0
    assert seen == [False]
    assert place.read_text() != verdict_to_json(FAILED)
    assert list(tmp_path.iterdir()) == [place]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("repro {verdict} -o {verdict}", "is the verdict"),
        ("repro {verdict} -o {subject}", "is the file of the subject"),
        ("repro {verdict} -o {notes}", "is no earlier script"),
        ("shrink {verdict} -o {verdict}", "is the verdict"),
        ("shrink {verdict} -o {notes}", "is no earlier verdict"),
        ("shrink {verdict} -o {subject}", "Python source"),
        ("selftest --json {notes}", "is no earlier matrix"),
        ("selftest --random 1 --json {subject}", "Python source"),
    ],
)
def test_other_commands_replace_no_more(
    call, capsys, tmp_path: Path, words: str, message: str
) -> None:
    files = {name: tmp_path / f"{name}.py" for name in ("verdict", "subject", "notes")}
    files["notes"] = tmp_path / "notes"
    run = make_failed()
    target = f"{files['subject']}:make"
    verdict = make_verdict(make_failed(setup={**run.setup, "target": target}))
    texts = dict.fromkeys(files, NOTES) | {"verdict": verdict_to_json(verdict)}
    for name, file in files.items():
        file.write_text(texts[name])
    assert call(*words.format(**files).split()) == 2
    assert message in capsys.readouterr().err
    assert {name: file.read_text() for name, file in files.items()} == texts
