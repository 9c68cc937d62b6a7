"""What an aggregator returns is said where the optimizer cannot unpack it."""

from __future__ import annotations

from pathlib import Path

import pytest
from one_run import check_one

import distbench
from distbench.errors import BadInputError

pytestmark = pytest.mark.cluster
FILE = Path(__file__).with_name("aggregators.py")


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("make_bare", r"returned a list with \w+ in it\. Expected: a list of"),
        ("make_empty", r"returned a NoneType\. Expected: a list of \(gradient"),
    ],
)
def test_what_is_no_list_of_pairs_is_refused(name: str, words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        distbench.check(f"{FILE}:{name}", "mirrored:2", workload="linear")


def test_on_a_cluster_alone_it_is_a_finding() -> None:
    run = check_one(f"{FILE}:make_bare_on_clusters", workload="linear")
    assert [finding.code for finding in run.findings] == ["raises"]
