"""Rows of sparse gradients that each replica computes, held against those due."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gradient_values import add_up, keep_slices, map_values
from training_simulator import KERNEL, TABLE, Fault, Gradients, Rule, observe
from wrong_steps import add_rows, overwrite

from distbench.diagnose.judge import judge
from distbench.trace import SparseRows
from distbench.trace.values import get_numbers
from distbench.verdict import Status

REPLICAS = pytest.mark.parametrize("replicas", [1, 2])


def change_table(gradients: Gradients, table: SparseRows) -> Gradients:
    return {k: table if k == TABLE else v for k, v in gradients.items()}


@REPLICAS
def test_each_row_once_is_no_sign_of_rows_that_were_lost(replicas: int) -> None:
    """What one replica computes is never what one of several replicas has."""

    def disturb(gradients: Gradients, replica: int, step: int) -> Gradients:
        rows = add_rows(gradients[TABLE])
        rng = np.random.default_rng((replica, step))
        factors = 1 + 0.3 * rng.normal(size=rows.values.shape)
        values = (rows.values * factors).astype(rows.values.dtype)
        return change_table(gradients, replace(rows, values=values))

    evidence = observe(Fault(local=disturb), replicas=replicas, shards_known=False)
    first = judge(evidence).findings[0]
    assert (first.phase, first.variable) == ("local_gradient", TABLE)
    assert not first.code.startswith("sparse"), first.explanation


@REPLICAS
@pytest.mark.parametrize("known", [True, False], ids=["optimizer", "program"])
def test_a_replica_that_overwrites_its_rows_is_told(replicas: int, known: bool) -> None:
    def overwrite_own(gradients: Gradients, replica: int, step: int) -> Gradients:
        return change_table(gradients, overwrite([gradients[TABLE]]))

    fault = Fault(local=overwrite_own)
    first = judge(observe(fault, replicas=replicas, shards_known=known)).findings[0]
    told = (first.code, first.phase, first.variable)
    assert told == ("sparse-duplicates", "local_gradient", TABLE), first.explanation
    assert first.confidence > 0.99


@REPLICAS
def test_rows_that_were_added_up_before_are_right(replicas: int) -> None:
    def add_own(gradients: Gradients, replica: int, step: int) -> Gradients:
        return change_table(gradients, add_rows(gradients[TABLE]))

    evidence = observe(Fault(local=add_own), replicas=replicas, shards_known=False)
    assert judge(evidence).findings == ()


@pytest.mark.parametrize("cut", ["all", "one"])
def test_slices_that_are_cut_to_the_fewest_are_told(cut: str) -> None:
    def cut_slices(own: list[Gradients], step: int) -> list[Gradients]:
        fewest = min(len(gradients[TABLE].indices) for gradients in own)
        kept = [
            change_table(
                gradients,
                replace(
                    gradients[TABLE],
                    indices=gradients[TABLE].indices[:count],
                    values=gradients[TABLE].values[:count],
                ),
            )
            for replica, gradients in enumerate(own)
            for count in (fewest - (cut == "one" and replica == 0),)
        ]
        return [add_up(kept)] * len(own)

    first = judge(observe(Fault(reduce=cut_slices), shards=(9, 5))).findings[0]
    assert (first.phase, first.variable) == ("reduced_gradient", TABLE)
    assert (first.code == "sparse-rows") == (cut == "all"), first.explanation


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("sgd", TABLE),
        ("momentum", f"momentum/{TABLE}"),
        ("adagrad", f"sum/{TABLE}"),
    ],
)
@pytest.mark.parametrize(
    ("kept", "code"),
    [
        ("last", "sparse-duplicates"),
        ("first", "sparse-duplicates"),
        ("mean", "sparse-averaged"),
    ],
)
def test_a_rule_that_takes_slices_apart_is_told_by_what_it_leaves(
    name: str, path: str, kept: str, code: str
) -> None:
    rule = Rule(name=name)

    def update(new, old, gradients, run):
        return rule.update(
            old, change_table(gradients, keep_slices(gradients[TABLE], kept))
        )

    evidence = observe(Fault(update=update), rule=rule)
    (finding,) = judge(evidence).findings
    phase = "variable" if path == TABLE else "slot"
    told = (finding.code, finding.phase, finding.variable)
    assert told == (code, phase, path), finding.explanation
    assert finding.confidence > 0.99


@pytest.mark.parametrize("shards", [(16, 0), (8, 8, 0), (8, 0, 8)])
@pytest.mark.parametrize("known", [True, False], ids=["optimizer", "program"])
def test_a_shard_without_examples_has_no_slices(shards, known) -> None:
    """What a clip leaves of slices was fitted to addends that were none."""

    def reduce(locals_: list[Gradients], step: int) -> list[Gradients]:
        total = add_up(locals_)
        rng = np.random.default_rng(step)
        for path in (TABLE, KERNEL):
            factors = rng.uniform(0.2, 3, get_numbers(total[path]).shape)
            total[path] = map_values(total[path], lambda v, f=factors: v * f)
        return [total for _ in locals_]

    count = len(shards)
    setup = {"replicas": count, "shards": shards, "shards_known": known}
    judgement = judge(observe(Fault(reduce=reduce), **setup))
    assert judgement.status is Status.FAIL
    assert judgement.findings[0].phase == "reduced_gradient"
