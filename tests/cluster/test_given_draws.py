"""Random numbers that belong to examples: what a step is given in place of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distbench

pytestmark = pytest.mark.cluster
EXAMPLES = 12


def _draw_everything() -> dict[str, Any]:
    """Runs in a task: many numbers of each kind, and a few facts of them."""
    import tensorflow as tf

    from distbench.worker.taps.given_draws import GivenDraws

    draws = GivenDraws([0], lambda: 0, lambda: [(3000, 7)], "/device:CPU:0")
    generator = tf.random.Generator.from_seed(1)
    seed = [3, 4]
    logits = tf.math.log(tf.constant([[0.2, 0.3, 0.5]]))

    @tf.function
    def step() -> dict[str, Any]:
        with draws.enter(()):
            return {
                "uniform": tf.random.uniform([3000, 7]),
                "half": tf.random.uniform([3000, 7], dtype=tf.bfloat16),
                "double": tf.random.stateless_uniform([9000], seed, dtype=tf.float64),
                "normal": tf.random.normal([3000, 7]),
                "of a seed": tf.random.stateless_normal([3000, 7], seed),
                "of a generator": generator.normal([3000, 7]),
                "truncated": tf.random.truncated_normal([9000]),
                "whole": tf.random.uniform([9000], -3, 5, tf.int32),
                "any": generator.uniform_full_int([9000], tf.uint64),
                "order": tf.random.shuffle(tf.range(2000)),
                "classes": tf.random.categorical(logits, 9000),
                "none": tf.random.uniform([0, 4]),
                "one": tf.random.uniform([]),
            }

    first, again = step(), step()
    draws.tell_step(1)
    other = step()
    outside = tf.random.uniform([2, 50])
    return {
        "drawn": {
            k: tf.cast(v, tf.float64).numpy() if v.dtype != tf.uint64 else v.numpy()
            for k, v in first.items()
        },
        "repeats": all(bool(tf.reduce_all(first[k] == again[k])) for k in first),
        "moves on": [k for k in first if not bool(tf.reduce_all(first[k] == other[k]))],
        "others outside": bool(tf.reduce_any(outside[0] != outside[1])),
    }


def _cut_everywhere() -> dict[str, float]:
    """Runs in a task: by how much rows of parts differ from the whole's, by place."""
    import tensorflow as tf

    from distbench.worker.taps.given_draws import GivenDraws

    examples = np.random.default_rng(0).normal(size=(EXAMPLES, 3)).astype(np.float32)
    draws = GivenDraws([0], lambda: 0, lambda: [(5, 2)], "/device:CPU:0")
    inner = tf.function(lambda x: tf.nn.dropout(tf.ones_like(x), 0.5))

    def draw_in_turns(batch: Any) -> Any:
        def turn(number: Any, total: Any) -> Any:
            return number + 1, total + tf.random.normal(tf.shape(batch))

        zeros = tf.zeros_like(batch)
        return tf.while_loop(lambda number, _: number < 3, turn, (0, zeros))[1]

    places = {
        "rows": lambda batch: tf.random.normal([tf.shape(batch)[0], 4]),
        "second axis": lambda batch: tf.transpose(
            tf.random.uniform([6, tf.shape(batch)[0], 2]), [1, 0, 2]
        ),
        "a function": lambda batch: inner(batch) + inner(batch),
        "turns": draw_in_turns,
        "all alike": lambda batch: tf.random.normal([7, 2])[:1] + 0.0 * batch[:, :2],
        "a variable's": lambda batch: tf.random.normal([5, 2])[:1] + 0.0 * batch[:, :2],
    }
    order = np.array([4, 0, 11, 4, 7])
    apart: dict[str, float] = {}
    for name, place in places.items():

        def step(batch: Any, place: Any = place) -> Any:
            with draws.enter(batch):
                return place(batch)

        fixed = tf.function(step)
        open_step = tf.function(
            step, input_signature=[tf.TensorSpec([None, 3], tf.float32)]
        )
        draws.tell_examples([examples])
        whole = fixed(examples).numpy()
        draws.tell_examples([examples[order]])
        parts = [run(examples[order]).numpy() for run in (fixed, open_step)]
        apart[name] = max(float(np.abs(p - whole[order]).max()) for p in parts)
        apart[f"{name}, vary"] = float(np.ptp(whole))
    return apart


@pytest.fixture(scope="module")
def drawn() -> Any:
    return distbench.run(_draw_everything, "one")["worker", 0]


def test_numbers_are_spread_as_those_in_whose_place_they_are(drawn: Any) -> None:
    values = drawn["drawn"]
    for name, low, high in [("uniform", 0, 1), ("half", 0, 1), ("double", 0, 1)]:
        assert low <= values[name].min() < 0.01, name
        assert 0.99 < values[name].max() < high, name
        assert abs(values[name].mean() - 0.5) < 0.01, name
        assert abs(values[name].std() - 12**-0.5) < 0.01, name
    for name in ("normal", "of a seed", "of a generator"):
        assert abs(values[name].mean()) < 0.03, name
        assert abs(values[name].std() - 1) < 0.03, name
    assert 1.9 < np.abs(values["truncated"]).max() <= 2
    assert sorted(set(values["whole"])) == list(range(-3, 5))
    assert values["any"].min() < 2**57
    assert values["any"].max() > 2**63
    assert sorted(values["order"]) == list(range(2000))
    assert abs(np.corrcoef(values["order"], np.arange(2000))[0, 1]) < 0.1
    counts = np.bincount(values["classes"].astype(int).ravel()) / 9000
    np.testing.assert_allclose(counts, [0.2, 0.3, 0.5], atol=0.03)
    assert values["none"].shape == (0, 4)


def test_numbers_have_nothing_to_do_with_each_other(drawn: Any) -> None:
    values = drawn["drawn"]
    names = ("normal", "of a seed", "of a generator", "uniform")
    columns = np.concatenate([values[name].T for name in names])
    others = np.corrcoef(columns) - np.eye(len(columns))
    assert np.abs(others).max() < 0.1
    rows = np.corrcoef(values["normal"][:40]) - np.eye(40)
    assert np.abs(rows).mean() < 0.5


def test_a_step_is_given_the_same_numbers_again_and_the_next_one_others(
    drawn: Any,
) -> None:
    assert drawn["repeats"]
    assert sorted(drawn["moves on"]) == sorted(set(drawn["drawn"]) - {"none"})
    assert drawn["others outside"]


def test_what_is_drawn_for_an_example_is_the_same_in_every_batch() -> None:
    apart = distbench.run(_cut_everywhere, "one")["worker", 0]
    for name in ("rows", "second axis", "a function", "turns"):
        assert apart[name] == 0, name
        assert apart[f"{name}, vary"] > 0.5, name
    for name in ("all alike", "a variable's"):
        assert apart[name] == 0, name


def test_examples_of_text_are_told_apart() -> None:
    from distbench.worker.taps.given_draws import digest_examples

    text = np.array([b"one", b"two", b"one"], object)
    first, second, third = digest_examples({"text": text})
    assert first == third != second
    beside = digest_examples((np.ones([3, 2]), text))
    assert beside[0] == beside[2] != beside[1]
