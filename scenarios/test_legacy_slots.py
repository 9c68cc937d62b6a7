"""Would catch slots that are restored on one worker, or in one copy, alone.

https://github.com/tensorflow/tensorflow/issues/50859 is about `set_weights`;
https://github.com/tensorflow/tensorflow/issues/44518 about slots that come back on one
device and not under a strategy.
"""

from __future__ import annotations

import pytest


@pytest.mark.programs("slots.py", "Restarting")
def test_all_weights_are_set_between_steps(check):
    check().raise_for_status()


@pytest.mark.programs("slots.py", "RestartingByName", clusters=["mirrored:2"])
def test_slots_are_found_and_set_by_their_names(check):
    check().raise_for_status()


@pytest.mark.programs("slots.py", "ChiefRestarts", kinds=["mwms"])
def test_weights_set_on_one_worker_are_found(diagnose, replicas):
    check_all_but_the_first(diagnose(), replicas)


@pytest.mark.programs(
    "slots.py", "FirstCopyRestarts", clusters=["mirrored:2"], kinds=["mirrored"]
)
def test_weights_set_in_one_copy_are_found(diagnose, replicas):
    check_all_but_the_first(diagnose(), replicas)


def check_all_but_the_first(findings, replicas):
    first = findings[0]
    assert (first.code, first.phase) == ("slot-not-synchronized", "slot")
    assert (first.step, first.replicas) == (1, tuple(range(1, replicas)))
