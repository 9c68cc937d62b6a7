"""Faults of sparse gradients."""

from __future__ import annotations

from gradient_values import add_values, scale
from planted_case import Case
from training_simulator import TABLE, Fault
from wrong_steps import (
    add_by_position,
    add_rows,
    divide_by_replicas,
    divide_rows,
    on,
    overwrite,
    overwrite_each,
    reduce_some,
    shift,
    shift_rows,
    under_first,
)

CASES = [
    Case(
        name="rows-overwritten",
        code="sparse-duplicates",
        phase="reduced_gradient",
        variable=TABLE,
        fault=Fault(reduce=reduce_some([TABLE], overwrite)),
    ),
    Case(
        name="rows-overwritten-in-each-replica",
        code="sparse-duplicates",
        phase="reduced_gradient",
        variable=TABLE,
        fault=Fault(reduce=reduce_some([TABLE], overwrite_each)),
    ),
    Case(
        name="rows-overwritten-before-the-update",
        code="sparse-duplicates",
        phase="applied_gradient",
        variable=TABLE,
        fault=Fault(transform=on([TABLE], lambda v: overwrite([v]))),
    ),
    Case(
        name="rows-divided-by-their-count",
        code="sparse-averaged",
        phase="reduced_gradient",
        variable=TABLE,
        fault=Fault(reduce=reduce_some([TABLE], divide_rows)),
    ),
    Case(
        name="rows-divided-by-their-replicas",
        code="sparse-averaged",
        phase="reduced_gradient",
        variable=TABLE,
        fault=Fault(reduce=reduce_some([TABLE], divide_by_replicas)),
        setup={"replicas": 3},
    ),
    Case(
        name="sparse-mean-dense-sum",
        code="sparse-averaged",
        phase="reduced_gradient",
        variable=TABLE,
        fault=Fault(
            reduce=reduce_some([TABLE], lambda v: scale(add_values(v), 1 / len(v)))
        ),
    ),
    Case(
        name="rows-under-the-first-replicas-indices",
        code="sparse-rows",
        phase="reduced_gradient",
        variable=TABLE,
        fault=Fault(reduce=reduce_some([TABLE], under_first)),
    ),
    Case(
        name="rows-shifted",
        code="sparse-rows",
        phase="reduced_gradient",
        variable=TABLE,
        fault=Fault(reduce=reduce_some([TABLE], shift)),
    ),
    Case(
        name="last-replica-overwrites-rows",
        code="sparse-duplicates",
        phase="reduced_gradient",
        variable=TABLE,
        fault=Fault(
            reduce=reduce_some([TABLE], lambda v: overwrite([add_rows(s) for s in v]))
        ),
        setup={"shards": (14, 2)},  # replica 1 must not have all rows
    ),
    Case(
        name="rows-of-one-replica-shifted",
        code="sparse-rows",
        phase="reduced_gradient",
        variable=TABLE,
        replicas=(1,),
        fault=Fault(
            reduce=reduce_some([TABLE], lambda v: add_values([v[0], shift_rows(v[1])]))
        ),
    ),
    Case(
        name="slices-added-by-position",
        code="sparse-rows",
        phase="reduced_gradient",
        variable=TABLE,
        fault=Fault(reduce=reduce_some([TABLE], add_by_position)),
        setup={"shards": (10, 6)},
    ),
]
