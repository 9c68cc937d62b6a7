"""What optimizers tell of their settings, and with others for a while."""

from __future__ import annotations

import pytest

import distbench

pytestmark = pytest.mark.cluster


def _tell_settings() -> dict[str, dict]:
    """Runs in a task: the settings of some optimizers."""
    import sys

    import keras
    import tensorflow as tf
    import tf_keras

    from distbench.worker.families import find_optimizers
    from distbench.worker.families.settings import read_settings

    class Odd(tf_keras.optimizers.SGD):
        def get_config(self):
            return {"array": tf.zeros([2]), "one": tf.constant(2.0), "rule": len}

    class Raising(tf_keras.optimizers.SGD):
        def get_config(self):
            raise NotImplementedError

    class Leaving(tf_keras.optimizers.SGD):
        def get_config(self):
            sys.exit(1)

    new, old = tf_keras.optimizers, tf_keras.optimizers.legacy
    decay = keras.optimizers.schedules.PiecewiseConstantDecay([2, 5], [0.3, 0.2, 0.1])
    rates = iter([0.1, 0.2])
    scaled = tf_keras.mixed_precision.LossScaleOptimizer
    made = {
        "new": new.SGD(0.1, momentum=0.9, clipnorm=0.5),
        "old": old.Adam(0.1, beta_2=0.9, amsgrad=True),
        "keras3": keras.optimizers.SGD(decay, nesterov=True, momentum=0.9),
        "v1": tf.compat.v1.train.MomentumOptimizer(0.1, 0.9),
        "wrapped": scaled(new.SGD(0.1, nesterov=True), dynamic_growth_steps=7),
        "wrapped3": keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)),
        "odd": Odd(0.1),
        "raising": Raising(0.1),
        "leaving": Leaving(0.1),
        "called": old.SGD(lambda: next(rates), momentum=0.9, nesterov=True),
    }
    told = {name: read_settings(find_optimizers([made[name]])) for name in made}
    return {**told, "left": {"rates": len(list(rates))}}


@pytest.fixture(scope="module")
def told() -> dict[str, dict]:
    [found] = distbench.run(_tell_settings, "one").values()
    return found


def test_settings_are_told_by_their_paths(told) -> None:
    assert told["new"]["0.momentum"] == 0.9
    assert told["new"]["0.clipnorm"] == 0.5
    assert told["new"]["0.global_clipnorm"] is None
    assert told["old"]["0.amsgrad"] is True
    assert told["keras3"]["0.nesterov"] is True
    assert told["keras3"]["0.learning_rate.config.boundaries.1"] == 5
    assert told["v1"]["0.momentum"] == 0.9


def test_what_is_kept_in_a_variable_is_state(told) -> None:
    assert "0.learning_rate" not in told["new"]
    assert not {"0.learning_rate", "0.beta_2"} & told["old"].keys()
    assert told["v1"]["0.learning_rate"] == 0.1


def test_names_and_compilation_are_no_settings(told) -> None:
    paths = [path for settings in told.values() for path in settings]
    assert not any(path.endswith((".name", ".jit_compile")) for path in paths)


@pytest.mark.parametrize("name", ["wrapped", "wrapped3"])
def test_an_optimizer_in_another_one_is_told_once(told, name: str) -> None:
    settings = told[name]
    assert "0.dynamic_growth_steps" in settings
    assert "1.nesterov" in settings
    assert not any(path.startswith("0.inner") for path in settings)


def test_what_is_no_value_or_raises_is_left_out(told) -> None:
    assert told["odd"] == {"0.one": 2.0}
    assert told["raising"] == told["leaving"] == {}


def test_a_rate_that_is_a_function_is_not_called(told) -> None:
    assert told["called"] == {"0.nesterov": True}
    assert told["left"] == {"rates": 2}


def _change_settings() -> tuple[list[dict], dict, frozenset]:
    """Runs in a task: settings before, while and after they are others."""
    import keras
    import tensorflow as tf
    import tf_keras

    from distbench.worker.families.other_settings import change_settings
    from distbench.worker.families.settings import read_settings

    class Renamed(tf_keras.optimizers.SGD):
        """Keeps what it tells elsewhere, beside what only looks like it."""

        def __init__(self):
            super().__init__(0.1)
            self.another, self._most, self.groups = 3.0, 3.0, (4, {"of": [5, 6]})

        def get_config(self):
            groups = {"first": self.groups[1]["of"][0], "all": self.groups}
            return {"limit": self._most, "a.b": self.another * 1.0, **groups}

    class Derived(tf_keras.optimizers.SGD):
        """Tells what it keeps nowhere."""

        def get_config(self):
            return {"limit": 1.0 + float(self.learning_rate)}

    new, old, v1 = tf_keras.optimizers, tf_keras.optimizers.legacy, tf.compat.v1.train
    decay = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    parts = new.schedules.PiecewiseConstantDecay([2, 5], [0.3, 0.2, 0.1])
    optimizers = [
        new.SGD(0.1, clipnorm=0.5),
        old.SGD(0.1, clipnorm=0.5),
        keras.optimizers.SGD(decay),
        v1.AdamOptimizer(0.1),
        old.SGD(parts),
        Renamed(),
        Derived(),
    ]
    known = {
        "0.clipnorm": 1.0,
        "1.clipnorm": 1.0,
        "2.nesterov": True,
        "2.learning_rate.config.decay_steps": 20,
        "3.learning_rate": 0.2,
        "3.beta1": 0.5,
        "4.learning_rate.config.boundaries.0": 1,
        "4.learning_rate.config.values.1": 0.5,
        "5.limit": 7.0,
        "5.a.b": 8.0,
        "5.all.1.of.1": 9,
    }
    others = {**known, "2.missing.one": 3, "6.limit": 2.5, "7.clipnorm": 3}
    held = [dict(vars(one)) for one in (*optimizers, parts)]
    seen = [read_settings(optimizers)]
    try:
        with change_settings(optimizers, others) as taken:
            seen.append(read_settings(optimizers))
            assert parts.boundaries == [1, 5]
            assert optimizers[5]._most == 7.0
            raise ZeroDivisionError
    except ZeroDivisionError:
        seen.append(read_settings(optimizers))
    assert held == [dict(vars(one)) for one in (*optimizers, parts)]
    return seen, known, taken


def test_settings_are_others_for_a_while() -> None:
    [(seen, others, taken)] = distbench.run(_change_settings, "one").values()
    before, inside, after = seen
    assert before == after
    assert taken == others.keys()
    assert inside == {**before, **others}


def _change_a_table() -> tuple[int, frozenset[str]]:
    """Runs in a task: how often an optimizer is asked while a list is set; what is."""
    import tf_keras

    from distbench.worker.families.other_settings import change_settings

    class Table(tf_keras.optimizers.SGD):
        """Has a rate for each step."""

        def __init__(self):
            super().__init__(0.1)
            self.rates, self.asked = [0.1 / (1 + n) for n in range(500)], 0

        def get_config(self):
            self.asked += 1
            return {"rates": self.rates}

    table = Table()
    others = {f"0.rates.{n}": 2 * rate for n, rate in enumerate(table.rates)}
    with change_settings([table], others) as taken:
        asked = table.asked
    return asked, taken


def test_what_a_list_has_is_set_at_once() -> None:
    """One after the other took minutes of a schedule that is a table."""
    [(asked, taken)] = distbench.run(_change_a_table, "one").values()
    assert len(taken) == 500
    assert asked < 10
