"""What reports show of a real cluster: its numbers, its logs, its curves."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

import distbench
from distbench.options import CheckOptions
from distbench.report.page import verdict_to_html
from distbench.summaries import list_scalars, write_summaries
from distbench.verdict import Status
from distbench.verdict.document import verdict_from_json, verdict_to_json

pytestmark = pytest.mark.cluster
SUBJECTS = Path(__file__).with_name("subjects.py")


def read_events(folder: str):
    """Every number below a folder, read as TensorBoard reads it."""
    import tensorflow as tf

    found = []
    for path in sorted(Path(folder).rglob("events.out.tfevents.*")):
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                assert value.metadata.plugin_data.plugin_name == "scalars"
                number = float(tf.make_ndarray(value.tensor))
                place = str(path.parent.relative_to(folder))
                found.append((place, value.tag, event.step, number))
    return found


def test_page_and_curves_show_what_the_cluster_did(tmp_path: Path) -> None:
    def talk():
        import tf_keras

        print("a word of the <b>subject</b>")
        return tf_keras.optimizers.legacy.SGD(
            0.125, gradient_aggregator=lambda pairs: [(2 * g, v) for g, v in pairs]
        )

    verdict = distbench.check(
        talk, "mwms:2", workload="linear", tier="bounded", details=True
    )
    (run,) = verdict.runs
    assert run.status is Status.FAIL
    details = run.details
    assert details is not None
    assert len(details.compared) == run.checked
    first = next(item for item in details.compared if item.wrong)
    assert (first.step, first.phase) == (run.findings[0].step, run.findings[0].phase)
    losses = {(s.observed, s.replica) for s in details.series if s.phase == "loss"}
    assert losses == {(True, 0), (True, 1), (False, -1), (False, 0), (False, 1)}
    assert set(details.logs) == {"worker-0", "worker-1", "worker-0 of one device"}
    assert all("a word of the <b>subject</b>" in text for text in details.logs.values())

    # What a process of pytest-xdist hands on makes the same page.
    handed = verdict_from_json(verdict_to_json(verdict, details=True))
    page = verdict_to_html(verdict, CheckOptions())
    assert page == verdict_to_html(handed, CheckOptions())
    assert "a word of the &lt;b&gt;subject&lt;/b&gt;" in page

    write_summaries(verdict, CheckOptions(), tmp_path / "board")
    expected: dict[tuple[str, str], list[tuple[int, np.float32]]] = defaultdict(list)
    for scalar in list_scalars(verdict):
        expected[scalar.folder, scalar.tag] += [
            (step, np.float32(value))
            for step, value in zip(scalar.steps, scalar.values, strict=True)
        ]
    events = distbench.run(read_events, "one", args=(str(tmp_path / "board"),))
    found = defaultdict(list)
    for place, tag, step, number in events["worker", 0]:
        found[place, tag].append((step, number))
    assert found == expected


def test_a_run_that_raises_keeps_its_logs() -> None:
    class Raises:
        def build(self, strategy):
            import tensorflow as tf

            self.replicas = strategy.num_replicas_in_sync
            self.weight = tf.Variable(1.0)

        def variables(self):
            return [self.weight]

        def optimizer(self):
            return None

        def data(self, step):
            return np.ones((4, 1), np.float32)

        def replica_step(self, batch):
            import tensorflow as tf

            print("the last word")
            if self.replicas > 1:
                raise ValueError("told to")
            self.weight.assign_sub(0.5)
            return tf.reduce_sum(batch) * self.weight

    verdict = distbench.check(Raises, "mirrored:2", tier="bounded", details=True)
    (run,) = verdict.runs
    assert [finding.code for finding in run.findings] == ["raises"]
    assert run.details is not None
    assert "the last word" in run.details.logs["worker-0"]
    page = verdict_to_html(verdict, CheckOptions())
    assert "the last word" in page
    assert "told to" in page
