"""Random numbers that all replicas draw alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from training_simulator import Fault, observe

from distbench.compare.state.measured_noise import measure_noise
from distbench.diagnose.remarks.randomness import find_shared_randomness
from distbench.evidence import Evidence
from distbench.verdict import Finding
from distbench.worker.taps.draws import find_draws

PACKAGES = Path(tf.__file__).parents[1]

OWN = {"train.py:12": "subject"}
LAYER = {"keras/src/random.py:92": "framework"}


def find(
    evidence: Evidence,
    draws: object = OWN,
    *,
    ordered: bool = True,
    seeds: object = None,
) -> Finding | None:
    """What is said of an evidence whose program draws where it is told."""
    told = {"draws": draws, "seeds": seeds, "narrowest": "float32"}
    notes = {**evidence.reference.notes, **told}
    reference = replace(evidence.reference, notes=notes)
    noise = replace(measure_noise(evidence), ordered=ordered)
    return find_shared_randomness(replace(evidence, reference=reference), noise)


def draw_apart(gradients, replica, step):
    """Some elements of a replica's gradient are dropped, others of the next one's."""
    del step
    rng = np.random.default_rng(replica)
    return {
        path: value * rng.integers(0, 2, value.shape).astype(value.dtype)
        for path, value in gradients.items()
    }


def run(fault: Fault | None = None, **setup: object) -> Evidence:
    setup = {"replicas": 3, "sparse": False, "shards_known": False, **setup}
    return observe(fault or Fault(), **setup)


@pytest.mark.parametrize(
    ("draws", "warning", "origin"),
    [
        (OWN, False, "subject"),
        (LAYER, True, "framework"),
        ({**OWN, **LAYER}, False, "subject"),
    ],
    ids=["own", "layer", "both"],
)
def test_replicas_that_draw_what_one_device_draws_are_told(draws, warning, origin):
    found = find(run(), draws)
    assert found is not None
    assert (found.code, found.phase, found.step) == ("randomness-shared", "loss", 0)
    assert (found.warning, found.origin) == (warning, origin)
    assert found.replicas == (0, 1, 2)
    assert next(iter(draws)) in found.explanation


def test_a_factor_does_not_hide_it():
    def scale(gradients, replica, step):
        del step
        return {p: v * v.dtype.type(replica + 0.5) for p, v in gradients.items()}

    assert find(run(Fault(local=scale))) is not None


@pytest.mark.parametrize(
    ("evidence", "options"),
    [
        (run(Fault(local=draw_apart)), {}),
        (run(), {"draws": {}}),
        (run(), {"draws": None}),
        (run(), {"ordered": False}),
        (run(replicas=1), {}),
        (run(shards=(16, 0, 0)), {}),
        (run(shards_known=True), {}),
    ],
    ids=[
        "each-for-itself",
        "nobody-draws",
        "not-known",
        "not-for-each-example",
        "one-replica",
        "one-with-examples",
        "a-workload",
    ],
)
def test_nothing_is_said_of_others(evidence, options):
    assert find(evidence, **options) is None


@pytest.mark.parametrize(
    ("seed", "is_told"), [("7", True), ("7 batch", False)], ids=["number", "examples"]
)
def test_who_makes_a_seed_of_the_examples_draws_by_the_own_ones(seed, is_told):
    found = find(run(), seeds={place: [seed] for place in OWN})
    assert (found is not None) is is_told


def test_replicas_without_examples_are_left_out():
    found = find(run(shards=(9, 0, 7)))
    assert found is not None
    assert found.replicas == (0, 2)


@pytest.mark.parametrize(
    ("file", "place", "whose"),
    [
        (f"{PACKAGES}/keras/src/random.py", "keras/src/random.py", "framework"),
        ("/home/me/loop.py", "/home/me/loop.py", "subject"),
        ("/home/me/keras/src/loop.py", "/home/me/keras/src/loop.py", "subject"),
        (
            "/home/me/tensorflow/python/loop.py",
            "/home/me/tensorflow/python/loop.py",
            "subject",
        ),
    ],
    ids=["installed", "own", "called-as-keras", "called-as-tensorflow"],
)
def test_a_place_that_draws_is_named_from_its_package_on(file, place, whose):
    tensorflow = f"{PACKAGES}/tensorflow/python/ops/random_ops.py"
    callers = [
        SimpleNamespace(filename=f, lineno=9)
        for f in ("/home/me/main.py", file, tensorflow)
    ]
    op = SimpleNamespace(type="StatelessRandomUniformV2", traceback=callers)
    graph = SimpleNamespace(get_operations=lambda: [op], _functions={})
    assert find_draws(graph) == {f"{place}:9": whose}
