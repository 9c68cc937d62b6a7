"""What the bench's own code raises amid the subject's: a bug, or a wrong argument."""

from __future__ import annotations

import pytest
import tensorflow as tf

import distbench
from distbench.errors import BadInputError
from distbench.samples.program import Program
from distbench.verdict import Status, describe_verdict

pytestmark = pytest.mark.cluster


class OneDeviceBug(Program):
    """Stands for a bug of the bench: a tap of it cannot be called."""

    def build(self, strategy):
        from distbench.worker.taps.board import TapBoard

        super().build(strategy)
        if self.is_hit(strategy):
            TapBoard.remember_gradient = 5

    def is_hit(self, strategy):
        del strategy
        return True


class ClusterBug(OneDeviceBug):
    def is_hit(self, strategy):
        return strategy.num_replicas_in_sync > 1


class FlightBug(Program):
    """Stands for a bug in what holds steps in flight open."""

    def build(self, strategy):
        from distbench.worker.stepping import held_open

        super().build(strategy)
        held_open._LOOPS = 5


class WrongArgument(Program):
    """Gives its optimizer no pairs: the bench's code takes them first."""

    def replica_step(self, batch):
        loss = super().replica_step(batch)
        self.optimizer().apply_gradients(5)
        return loss


class WrongArgumentOnCluster(WrongArgument):
    def replica_step(self, batch):
        if tf.distribute.has_strategy():
            return super().replica_step(batch)
        return Program.replica_step(self, batch)


def check(program: type, cluster: str = "mirrored:2", **options):
    target = f"{__file__}:{program.__name__}"
    return distbench.check(target, cluster, steps=2, **options)


@pytest.mark.parametrize("program", [OneDeviceBug, ClusterBug])
def test_a_bug_of_the_bench_is_its_own(program: type) -> None:
    (run,) = check(program).runs
    assert run.status is Status.ERROR
    assert not run.findings
    assert "raised at distbench/worker/taps/" in run.message
    assert "a bug of distbench" in run.message
    assert "taps/tapes.py" in run.detail


def test_a_bug_amid_steps_in_flight_is_its_own() -> None:
    (run,) = check(FlightBug, "ps:2+1", in_flight=2).runs
    assert run.status is Status.ERROR
    assert "raised at distbench/worker/stepping/held_open.py" in run.message


def test_a_wrong_argument_is_bad_input() -> None:
    with pytest.raises(BadInputError, match=r"one device already.*not iterable.*(5)"):
        check(WrongArgument)


@pytest.mark.parametrize("cluster", ["mirrored:2", "mwms:2"])
def test_a_wrong_argument_on_a_cluster_is_the_subjects(cluster: str) -> None:
    verdict = check(WrongArgumentOnCluster, cluster)
    (finding,) = verdict.runs[0].findings
    assert (finding.code, finding.origin) == ("raises", "subject")
    assert "apply_gradients(5)" in finding.explanation, describe_verdict(verdict)
