"""Many drawn faults: what they cover, and what holds of each."""

from __future__ import annotations

import pytest
from drawn_checks import check_expected, check_gradient, check_shards

from distbench.faults.generated import Generated, generate
from distbench.faults.generated.mistake import MISTAKES
from distbench.samples.drawn.training import PATHS


@pytest.fixture(scope="module")
def drawn() -> list[Generated]:
    return [generate(seed) for seed in range(150)]


def test_kinds_codes_paths_and_clusters_are_covered(drawn: list[Generated]) -> None:
    assert len({made.mistake.name for made in drawn}) > 0.8 * len(MISTAKES)
    assert len({made.fault.code for made in drawn}) >= 25
    assert {made.facts.plan.path for made in drawn} == set(PATHS)
    assert {made.cluster for made in drawn} == {"mirrored:2", "mirrored:3", "mwms:2"}


def test_every_one_is_what_it_says(drawn: list[Generated]) -> None:
    for made in drawn:
        check_expected(made)
        check_gradient(made)
        check_shards(made)
