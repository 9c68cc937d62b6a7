"""State that goes by another path on the cluster is found again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distbench.trace import VariableInfo
from distbench.trace.naming import pair_names, pair_runs


def make(path: str, of: str = "", role: str = "slot", shape: tuple[int, ...] = (3,)):
    return VariableInfo(path=path, role=role, of=of, shape=shape, dtype="float32")


@pytest.mark.parametrize(
    ("ours", "theirs", "paired"),
    [
        (["cond_3/SGD/w/m"], ["cond_1/SGD/w/m"], {"cond_3/SGD/w/m": "cond_1/SGD/w/m"}),
        (["SGD/w/m"], ["cond/SGD/w/m"], {"SGD/w/m": "cond/SGD/w/m"}),
        (["SGD/w/m"], ["SGD/w/m"], {}),
        (["a/m", "b/m"], ["c/m", "d/m"], {"a/m": "c/m", "b/m": "d/m"}),
        (["a/m", "b/m"], ["c/m"], {}),
        (["a/m"], ["c/v"], {}),
        (["x/A/m", "x/B/m"], ["y/B/m", "y/A/m"], {"x/A/m": "y/A/m", "x/B/m": "y/B/m"}),
    ],
    ids=[
        "other-number",
        "no-scope",
        "equal",
        "order",
        "fewer",
        "other-tail",
        "longest",
    ],
)
def test_slots_are_paired_by_the_end_of_their_path(ours, theirs, paired):
    assert pair_names([make(p) for p in ours], [make(p) for p in theirs]) == paired


@pytest.mark.parametrize(
    "other",
    [
        make("b/m", of="v"),
        make("b/m", shape=(4,)),
        make("b/m", role="iterations"),
    ],
    ids=["owner", "shape", "role"],
)
def test_what_is_something_else_is_not_paired(other):
    assert pair_names([make("a/m", of="w")], [other]) == {}


def test_variables_of_the_model_keep_their_paths():
    ours, theirs = make("a/w", role="variable"), make("b/w", role="variable")
    assert pair_names([ours], [theirs]) == {}


def test_a_variable_is_found_in_another_scope_with_its_slots():
    ours = [make("net/w", role="variable"), make("SGD/m/net/w", of="net/w")]
    theirs = [make("w", role="variable"), make("SGD/m/w", of="w")]
    paired = {"net/w": "w", "SGD/m/net/w": "SGD/m/w"}
    assert pair_names(ours, theirs) == paired
    assert pair_names(theirs, ours) == {them: us for us, them in paired.items()}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ([make("a/w"), make("b/w")], [make("w")]),
        ([make("net/w")], [make("w", shape=(4,))]),
        ([make("a/net_w")], [make("w")]),
        ([make("a/w"), make("w")], [make("w")]),
    ],
    ids=["two", "shape", "word", "known"],
)
def test_scopes_that_tell_nothing_pair_no_variables(ours, theirs):
    lists = ([replace(i, role="variable") for i in infos] for infos in (ours, theirs))
    assert pair_names(*lists) == {}


@pytest.mark.parametrize(
    ("ours", "theirs", "slot"),
    [
        ("w", "w_1", "momentum/{}"),
        ("m", "m_1", "momentum/{}"),
        ("m", "n", "{}/momentum"),
        ("dense/kernel", "dense_1/kernel", "momentum/{}"),
        ("dense/kernel", "dense_1/kernel", "adam/{}_momentum"),
    ],
)
def test_a_slot_is_renamed_with_its_variable(ours, theirs, slot):
    """That of Keras 3 is one part of a path."""

    def name(path):
        return slot.format(path if slot.endswith("/{}") else path.replace("/", "_"))

    def list_both(path):
        return [make(path, role="variable"), make(name(path), of=path)]

    paired = pair_runs(list_both(ours), list_both(theirs))
    assert paired == {ours: theirs, name(ours): name(theirs)}
