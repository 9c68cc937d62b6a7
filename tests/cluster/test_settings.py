"""What optimizers tell of their settings, and with others for a while."""

from __future__ import annotations

import pytest

import distbench

pytestmark = pytest.mark.cluster


def _tell_settings() -> dict[str, dict]:
    """Runs in a task: the settings of some optimizers."""
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

    new, old = tf_keras.optimizers, tf_keras.optimizers.legacy
    decay = keras.optimizers.schedules.PiecewiseConstantDecay([2, 5], [0.3, 0.2, 0.1])
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
    }
    return {name: read_settings(find_optimizers([made[name]])) for name in made}


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
    assert told["raising"] == {}


def _change_settings() -> tuple[list[dict], dict, frozenset]:
    """Runs in a task: settings before, while and after they are others."""
    import keras
    import tf_keras

    from distbench.worker.families.settings import change_settings, read_settings

    new, old = tf_keras.optimizers, tf_keras.optimizers.legacy
    decay = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    optimizers = [
        new.SGD(0.1, clipnorm=0.5),
        old.SGD(0.1, clipnorm=0.5),
        keras.optimizers.SGD(decay),
    ]
    others = {
        "0.clipnorm": 1.0,
        "1.clipnorm": 1.0,
        "2.nesterov": True,
        "2.learning_rate.config.decay_steps": 20,
        "2.missing.one": 3,
        "7.clipnorm": 3,
    }
    seen = [read_settings(optimizers)]
    try:
        with change_settings(optimizers, others) as taken:
            seen.append(read_settings(optimizers))
            raise ZeroDivisionError
    except ZeroDivisionError:
        seen.append(read_settings(optimizers))
    return seen, others, taken


def test_settings_are_others_for_a_while() -> None:
    [(seen, others, taken)] = distbench.run(_change_settings, "one").values()
    before, inside, after = seen
    assert before == after
    known = others.keys() & before.keys()
    assert len(known) == 4
    assert taken == known
    assert inside == {**before, **{path: others[path] for path in known}}
