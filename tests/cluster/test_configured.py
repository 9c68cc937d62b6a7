"""How often one device is set as the replicas of a cluster are."""

from __future__ import annotations

import pytest

import distbench

pytestmark = pytest.mark.cluster


def _configure(numbers: list[int], wrong: list[int], rate: float) -> tuple[int, list]:
    """Runs in a task: how often steps are traced for replicas' settings, and the rest.

    Args:
        numbers: The setting of each replica, of which one device makes nothing.
        wrong: Replicas whose state does not follow.
        rate: Another one of all; 1 on one device, which adds that to its variable.
    """
    from contextlib import nullcontext
    from types import SimpleNamespace

    import numpy as np
    import tf_keras

    from distbench.trace import Trace, TraceKey, Values
    from distbench.trace.settings import note_settings
    from distbench.worker.one_device.configured import configure_alike

    class Own(tf_keras.optimizers.SGD):
        number, rate = 0, 1.0

        def get_config(self):
            return {"number": self.number, "rate": self.rate}

    def make_trace(states, name="run", replicas=4, **notes):
        values = {
            TraceKey(step=0, phase="variable", variable="w", replica=r): np.float32([x])
            for r, x in states.items()
        }
        return Trace(
            name=name, replicas=replicas, shards=(), variables=(), values=values,
            notes=notes,
        )  # fmt: skip

    def feed(tier, given, phase):
        nonlocal traced
        traced += 1
        replicas = {key.replica for key in given.values}
        return make_trace(dict.fromkeys(replicas, optimizer.rate))

    optimizer, traced = Own(0.1), 0
    notes: dict = {}
    for replica, number in enumerate(numbers):
        notes |= note_settings({"0.number": number, "0.rate": rate}, replica)
    one = note_settings({"0.number": 0, "0.rate": 1.0})
    places = range(len(numbers))
    made = []

    def keep(name, values, **notes):
        made.append(sorted(key.replica for key in values))
        return SimpleNamespace(notes=notes)

    session = SimpleNamespace(optimizers=[optimizer], make_values=lambda: Values({}))
    reference = SimpleNamespace(session=session, make_trace=keep)
    feeder = SimpleNamespace(reference=reference, trace_apart=nullcontext, feed=feed)
    found = configure_alike(
        feeder,
        "bounded",
        make_trace({0: 1.0}, replicas=1, **one),
        make_trace({r: 5.0 if r in wrong else 1.0 for r in places}, **notes),
        make_trace(dict.fromkeys(places, 1.0)),
    )
    return traced, [found.notes["untried"], *made]


@pytest.mark.parametrize(
    ("numbers", "wrong", "rate", "traced", "fed"),
    [
        pytest.param([1, 2, 3], [0, 1, 2], 1.0, 1, [0], id="leads-nothing"),
        pytest.param([1, 2, 3], [0, 1, 2], 5.0, 3, [0, 1, 2], id="leads"),
        pytest.param([1, 1, 1], [0, 1, 2], 5.0, 1, [0, 1, 2], id="alike"),
        pytest.param([1, 2, 3], [1], 5.0, 1, [1], id="right-elsewhere"),
    ],
)
def test_steps_are_traced_as_often_as_settings_may_tell(
    numbers: list, wrong: list, rate: float, traced: int, fed: list
) -> None:
    [found] = distbench.run(_configure, "one", args=(numbers, wrong, rate)).values()
    assert found == (traced, [[], fed])
