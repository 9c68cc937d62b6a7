"""The page that `write_families.py` writes: family x strategy x path, with verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from families_cases import CLUSTERS, FAMILIES, Case
from known_rows import Known, join_cells, number_row, start_table, write_known
from measured import count_commits, describe_measured, write_paragraph

Row = dict[str, Any]
"""One check, as it is kept."""

_HEAD = """\
<!-- Written by scripts/write_families.py from docs/measured/families.json. -->

# Families, strategies and paths

What `distbench check` says of each family's stock Adam, under each strategy and on each
path: who sums the gradients (`distbench list`), Keras' own `fit`, or another method of
the family. Gradients are dense (`linear`, tiers exact and bounded) or sparse
(`embedding`); under a loss scale an example of the last replica overflows, so that one
replica alone has an Inf. Every option of every stock optimizer is in
[another table](stock-optimizers.md).

<!-- not run: it takes hours -->
```console
$ .venv/bin/python scripts/write_families.py --minutes 30   # goes on where it stopped
```

A cell is `dense / sparse`, or one word for both. A number behind a verdict is that of
its explanation below; `?` has none yet, and an empty cell was not run.
"""


def _finds(*codes: str) -> Callable[[Row], bool]:
    """All findings have one of the codes, and are the framework's doing."""

    def fits(row: Row) -> bool:
        found = row.get("findings", ())
        return bool(found) and all(
            f["code"] in codes and f["origin"] == "framework" for f in found
        )

    return fits


def _says(words: str) -> Callable[[Row], bool]:
    """The framework refuses in these words, or raises and is found to."""

    def fits(row: Row) -> bool:
        raised = [f for f in row.get("findings", ()) if f["code"] == "raises"]
        if raised:
            return all(
                f["origin"] == "framework" and words in f["explanation"] for f in raised
            )
        return row["status"] == "refused" and words in row["message"]

    return fits


KNOWN: tuple[Known, ...] = (
    Known(
        title="Refused with a clear error",
        says="tf_keras refuses clips of its legacy optimizers under central storage "
        "(`make_gradient_clipnorm_fn` and its like in "
        "tf_keras/src/optimizers/utils.py), and there and on parameter servers loss "
        "scales (`_raise_if_strategy_unsupported` in "
        "tf_keras/src/mixed_precision/loss_scale_optimizer.py) and gradients that the "
        "program has summed (`apply_gradients` in "
        "tf_keras/src/optimizers/legacy/optimizer_v2.py).",
        fits=_says("is not supported "),
    ),
    Known(
        title="Clips before the sum",
        says="`BaseOptimizer.apply` in keras/src/optimizers/base_optimizer.py clips "
        "each replica's gradients, and they are summed later.",
        fits=_finds("clip-before-reduction"),
        entry="keras3_clips_before_the_sum.py",
    ),
    Known(
        title="Updates a shared variable on each replica",
        says="`Optimizer.apply_gradients` in tensorflow/python/training/optimizer.py, "
        "told not to sum, has every replica update what all share; of Adam's powers "
        "(`AdamOptimizer._finish` in tensorflow/python/training/adam.py) TensorFlow "
        "refuses it, as of what `LossScaleOptimizer._tf_apply` in "
        "keras/src/optimizers/loss_scale_optimizer.py assigns in a conditional.",
        fits=_says("specify an aggregation method to update a AggregatingVariable"),
        entry="v1_updates_once_per_replica.py",
    ),
    Known(
        title="One replica decides on the step",
        says="`LossScaleOptimizer._tf_apply` in "
        "keras/src/optimizers/loss_scale_optimizer.py asks the first replica whether "
        "its gradients are finite, and all follow it.",
        fits=_finds("nonfinite", "collective-mismatch"),
        entry="keras3_loss_scale_asks_one_replica.py",
    ),
    Known(
        title="Keras 3 does not train on workers",
        says="`reduce_per_replica` in keras/src/backend/tensorflow/trainer.py takes a "
        "mean over an axis that its values lack.",
        fits=_says("Invalid reduction dimension 0 for input with 0 dimensions"),
        entry="keras3_fit_raises_on_workers.py",
    ),
    Known(
        title="Keras 3 does not train with parameter servers",
        says="`fit` in keras/src/backend/tensorflow/trainer.py knows no coordinator, "
        "which alone can iterate over the data of the workers.",
        fits=_says("pass this dataset to ClusterCoordinator.create_per_worker_dataset"),
    ),
)


def make_page(cases: Sequence[Case], document: Mapping[str, Any]) -> str:
    """The page in Markdown."""
    rows: Sequence[Row] = document["rows"]
    lines = [_HEAD, *describe_measured(document), *_write_total(cases, rows)]
    for family, base in FAMILIES.items():
        chosen = [case for case in cases if case.family == family]
        lines += _write_family(base, chosen, {row["case"]: row for row in rows})
    return "\n".join([*lines, *write_known(rows, KNOWN, "checks")])


def _write_total(cases: Sequence[Case], rows: Sequence[Row]) -> Iterator[str]:
    statuses = Counter(row["status"] for row in rows)
    counted = ", ".join(f"{count} {status}" for status, count in statuses.most_common())
    numbers = sum(row.get("checked", 0) for row in rows)
    by = count_commits(rows)
    yield from write_paragraph(
        f"{len(rows)} of {len(cases)} checks made ({by}), with {numbers} comparisons: "
        f"{counted}."
    )


def _write_family(
    base: str, cases: Sequence[Case], rows: Mapping[str, Row]
) -> Iterator[str]:
    yield f"## `{base}`"
    yield ""
    yield from start_table("path", *CLUSTERS)
    for path in dict.fromkeys(case.path for case in cases):
        cells = []
        for cluster in CLUSTERS:
            ids = [c.id for c in cases if (c.path, c.cluster) == (path, cluster)]
            words = [_describe(rows[i]) if i in rows else "" for i in ids]
            cells.append(words[0] if len(set(words)) == 1 else " / ".join(words))
        yield join_cells(path, *cells)
    yield ""


def _describe(row: Row) -> str:
    if row["status"] == "pass":
        return "pass"
    found = row.get("findings", ())
    return f"{found[0]['code'] if found else row['status']} {number_row(row, KNOWN)}"
