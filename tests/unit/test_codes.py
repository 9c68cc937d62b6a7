"""The registry of codes: complete, readable, and equal to its pages."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from imported_scripts import import_scripts

from distbench.codes import CODES, Code, find_code
from distbench.errors import BadInputError
from distbench.trace import PHASES

ROOT = Path(__file__).parents[2]
CONTRACT = """
loss-not-scaled loss-scaled-twice mean-of-means regularizer-not-scaled
missing-reduction variable-not-reduced double-reduction mean-instead-of-sum
replica-dropped wrong-pairing clip-before-reduction nonlinear-before-reduction
sparse-duplicates sparse-averaged sparse-rows stale-gradient scale-error nonfinite
slot-initial slot-from-local-gradient slot-not-synchronized slot-repeated
update-repeated weight-decay-repeated momentum-repeated iterations-wrong
replicas-diverged lost-update extra-update stale-read raises collective-mismatch
loss-misreported metric-wrong accumulation-scale weight-decay-missing
hyperparameter-differs statistics-not-synchronized examples-repeated examples-missed
randomness-shared initial-value-differs state-not-restored nondeterministic-update
lower-precision unexplained
"""


def test_every_code_of_the_contract_is_explained_and_no_other() -> None:
    assert set(CODES) == set(CONTRACT.split())


@pytest.mark.parametrize("code", CODES.values(), ids=lambda code: code.name)
def test_an_explanation_is_complete(code: Code) -> None:
    assert set(code.phases) <= set(PHASES)
    for text in (
        code.signature,
        code.meaning,
        code.mathematics,
        code.confirm,
        code.fix,
    ):
        assert text.strip() == text != ""
    assert code.fix_alone.strip() == code.fix_alone
    assert code.advise(alone=False) == code.fix
    assert code.advise(alone=True) == (code.fix_alone or code.fix)
    assert len(code.mathematics.splitlines()) <= 3
    assert bool(code.wrong) == bool(code.right)
    for snippet in (code.wrong, code.right):
        ast.parse(snippet)
        # A terminal of 80 columns shows all of it, indented.
        assert max(map(len, snippet.splitlines()), default=0) <= 76


def test_only_the_two_contracted_codes_are_warnings() -> None:
    warnings = {code.name for code in CODES.values() if code.warning}
    assert warnings == {"nondeterministic-update", "lower-precision"}


def test_an_unknown_code_names_the_nearest() -> None:
    with pytest.raises(BadInputError, match="Did you mean 'mean-of-means'"):
        find_code("mean-of-mean")


def test_the_pages_are_up_to_date() -> None:
    with import_scripts("write_code_pages") as scripts:
        script = scripts["write_code_pages"]
        written = {p.name: p.read_text("utf-8") for p in script.FOLDER.glob("*.md")}
        assert written == script.make_pages(), "run scripts/write_code_pages.py"


def test_the_command_line_is_described_as_it_is() -> None:
    with import_scripts("write_command_line") as scripts:
        script = scripts["write_command_line"]
        written = script.PAGE.read_text("utf-8")
        assert written == script.make_page(), "run scripts/write_command_line.py"
