"""What ops of a step say of state that other steps may change amid its update."""

from __future__ import annotations

import pytest

import distbench

pytestmark = pytest.mark.cluster


def find_torn_state():
    """On one device: what each rule reads by one op, to write by another.

    And what it changes by what it reads again of that.
    """
    import keras
    import tensorflow as tf
    import tf_keras

    from distbench.faults.servers import SlotReadBack
    from distbench.worker.families import find_counter
    from distbench.worker.state.torn import find_led, find_torn
    from distbench.worker.state.variables import VariableTable, list_state

    def make_step(optimizer, variable):
        # What comes as an argument has a handle that is none of the table's.
        def step():
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(variable**2)
            optimizer.apply_gradients([(tape.gradient(loss, variable), variable)])

        return step

    legacy, v1 = tf_keras.optimizers.legacy, tf.compat.v1.train
    made = {
        "legacy momentum": legacy.SGD(0.1, 0.5),
        "legacy adam": legacy.Adam(0.1),
        "tf_keras sgd": tf_keras.optimizers.SGD(0.1),
        "tf_keras momentum": tf_keras.optimizers.SGD(0.1, 0.5),
        "tf_keras adam": tf_keras.optimizers.Adam(0.1),
        "keras 3 sgd": keras.optimizers.SGD(0.1),
        "keras 3 adam": keras.optimizers.Adam(0.1),
        "v1 momentum": v1.MomentumOptimizer(0.1, 0.5),
        "v1 adam": v1.AdamOptimizer(0.1),
        "slot read back": SlotReadBack(),
    }
    found = {}
    for name, optimizer in made.items():
        variable = tf.Variable([1.0, 2.0], name="x")
        if name.startswith("keras 3"):
            optimizer.build([variable])

        graph = (
            tf.function(make_step(optimizer, variable)).get_concrete_function().graph
        )
        state = list_state([variable], [optimizer], (), find_counter)
        table = VariableTable(state)
        paths = find_torn(graph, table)
        led = find_led(graph, table, paths)
        found[name] = [
            sorted({v.info.role for v in table.state if v.info.path in kind})
            for kind in (paths, led)
        ]
    return found


def find_torn_sums():
    """On one device: whether a sum is torn, by what a step does after reading it."""
    import tensorflow as tf

    from distbench.worker.families import find_counter
    from distbench.worker.state.torn import find_torn
    from distbench.worker.state.variables import VariableTable, list_state

    total, model = (tf.Variable([1.0, 2.0], name=name) for name in ("total", "model"))
    table = VariableTable(list_state([total, model], [], (), find_counter))

    def add_and(end):
        def step():
            total.assign_add(model * 2.0)
            if tf.reduce_sum(model) > 0.0:
                read = total.read_value()
                model.assign_sub(read)
                end(read)

        return step

    steps = {
        "begins anew": add_and(lambda _: total.assign([0.0, 0.0])),
        "takes away what it read": add_and(total.assign_sub),
        "is read alone": add_and(lambda _: None),
        # What nobody adds to is as it was read, or another's whole value.
        "is a copy": lambda: (model.assign_sub(total), total.assign([1.0, 1.0])),
    }
    return {
        name: find_torn(tf.function(step).get_concrete_function().graph, table)
        for name, step in steps.items()
    }


def test_what_other_steps_may_change_amid_an_update_is_told_by_its_ops() -> None:
    """Which the origin of a race rests on; whether one shows is chance."""
    found = distbench.run(find_torn_state, "one")["worker", 0]
    assert found == {
        "legacy momentum": [[], []],
        "legacy adam": [[], []],
        "tf_keras sgd": [["slot"], ["variable"]],
        "tf_keras momentum": [["slot"], ["variable"]],
        "tf_keras adam": [["slot"], ["variable"]],
        "keras 3 sgd": [["iterations"], []],
        "keras 3 adam": [["iterations", "slot"], ["variable"]],
        "v1 momentum": [[], []],
        "v1 adam": [["slot"], []],
        "slot read back": [["slot"], ["variable"]],
    }


def test_a_sum_that_begins_anew_after_it_was_read_loses_what_comes_between() -> None:
    assert distbench.run(find_torn_sums, "one")["worker", 0] == {
        "begins anew": ["total"],
        "takes away what it read": [],
        "is read alone": [],
        "is a copy": [],
    }
