"""Variables without a name: TensorFlow calls them all `Variable`."""

from __future__ import annotations

import pytest
import tensorflow as tf
from odd_programs import Regression
from tf_keras.optimizers import legacy

import distbench

pytestmark = pytest.mark.cluster


def list_owners():
    """On one device: of which variable each optimizer's slots are said to be."""
    import keras
    import tf_keras

    from distbench.worker.families import find_counter, name_family
    from distbench.worker.state.reachable import find_held
    from distbench.worker.state.variables import list_state

    v1 = tf.compat.v1.train
    made = {
        "legacy": tf_keras.optimizers.legacy.Adam(0.1),
        "scaled": tf_keras.mixed_precision.LossScaleOptimizer(
            tf_keras.optimizers.legacy.Adam(0.1)
        ),
        "tf_keras": tf_keras.optimizers.Adam(0.1),
        "keras": keras.optimizers.Adam(0.1),
        "v1": v1.AdamOptimizer(0.1),
    }
    found = {}
    for name, optimizer in made.items():
        variables = [tf.Variable(tf.ones([size])) for size in (1, 2, 3)]
        trained = variables[::-1]
        if name == "keras":
            for variable in trained:
                variable.path = "Variable"
            optimizer.build(trained)
        optimizer.apply_gradients([(tf.ones_like(v), v) for v in trained])
        all_of_them = find_held(optimizer, name_family)
        state = [v.info for v in list_state(variables, all_of_them, (), find_counter)]
        shapes = {v.path: v.shape for v in state}
        found[name] = [(v.shape, shapes[v.of]) for v in state if v.of and v.shape]
    return found


def test_each_slot_is_that_of_its_own_variable() -> None:
    found = distbench.run(list_owners, cluster="one")["worker", 0]
    assert {name: len(pairs) for name, pairs in found.items()} == dict.fromkeys(
        ("legacy", "scaled", "tf_keras", "keras", "v1"), 6
    )
    for name, pairs in found.items():
        assert all(slot == variable for slot, variable in pairs), (name, pairs)


def list_owned_numbers():
    """On one device: which shared numbers are said to be slots of a variable."""
    import keras
    import tf_keras

    from distbench.worker.families import find_counter, name_family
    from distbench.worker.state.reachable import find_held
    from distbench.worker.state.variables import list_state

    v1, legacy = tf.compat.v1.train, tf_keras.optimizers.legacy
    made = {
        "beta": [legacy.Adam(0.1), v1.AdamOptimizer(0.1), keras.optimizers.Adam(0.1)],
        "beta1": [v1.AdamOptimizer(0.1)],
        "learning": [legacy.SGD(0.1), keras.optimizers.SGD(0.1)],
        "learning_rate": [tf_keras.optimizers.SGD(0.1), keras.optimizers.SGD(0.1)],
        "dynamic": [keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1))],
    }
    found = []
    for name, optimizers in made.items():
        for optimizer in optimizers:
            variables = [tf.Variable(1.0, name=n) for n in (name, "other")]
            if type(optimizer).__module__.startswith("keras."):
                for variable in variables:
                    variable.path = variable.name
                optimizer.build(variables)
            optimizer.apply_gradients([(tf.ones_like(v), v) for v in variables])
            holders = find_held(optimizer, name_family)
            state = [v.info for v in list_state(variables, holders, (), find_counter)]
            owned = [v.path for v in state if v.of]
            kind, module = type(optimizer).__name__, type(optimizer).__module__
            # That of tf_keras has momentums that it leaves alone.
            has_own = module == "tf_keras.src.optimizers.sgd"
            moments = 4 if "Adam" in kind else 2 * has_own
            found.append((name, module, owned, moments))
    return found


def test_numbers_for_all_variables_are_of_none() -> None:
    """Adam has two moments of each of two variables, and no more."""
    found = distbench.run(list_owned_numbers, cluster="one")["worker", 0]
    for name, module, owned, moments in found:
        assert len(owned) == moments, (name, module, owned)


class GrowsMoment(legacy.Adam):
    """Multiplies first moments of matrices by the number of replicas."""

    def _resource_apply_dense(self, grad, var, apply_state=None):
        update = super()._resource_apply_dense(grad, var, apply_state)
        if len(var.shape) < 2:
            return update
        moment = self.get_slot(var, "m")
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        with tf.control_dependencies([update]):
            return moment.assign(moment * float(replicas))


class Nameless(Regression):
    """Two layers, of which the program gives none of its variables a name."""

    def build(self, strategy):
        del strategy
        self.offset = tf.Variable(tf.zeros([2]))
        self.layers = {"last": tf.Variable(tf.ones([4, 2]))}
        self._optimizer = GrowsMoment(0.1)

    def variables(self):
        return [self.offset, self.layers["last"]]

    def compute_loss(self, batch):
        features, targets = batch
        made = features @ self.layers["last"] + self.offset
        return tf.reduce_sum((made - targets) ** 2) / self.examples

    def replica_step(self, batch):
        with tf.GradientTape() as tape:
            loss = self.compute_loss(batch)
        trained = self.variables()
        gradients = tape.gradient(loss, trained)
        self._optimizer.apply_gradients(zip(gradients, trained, strict=True))
        return loss


def test_they_are_named_by_where_the_program_holds_them() -> None:
    verdict = distbench.check(Nameless, "mirrored:2", steps=2, tier="bounded")
    (finding,) = verdict.findings
    assert finding.code == "hyperparameter-differs"
    assert "slot of 'Adam/Variable/m#2' for 'layers/last'" in finding.explanation
