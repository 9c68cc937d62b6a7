"""A loss of which one term is plainly a mean, and of another nothing can be told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from exchanging import note
from grouped_losses import Batch, Compute, mean_squares, sum_squares
from grouped_training import Simulator, put

from distbench.compare.nature.odd_terms import settle_terms
from distbench.compare.state.measured_noise import measure_noise
from distbench.diagnose.judge import judge
from distbench.evidence import Evidence
from distbench.trace import TraceKey, Value
from distbench.verdict import Status


def measure_outputs(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """The norm of all outputs of a batch."""
    x = batch[:, :-1]
    outputs = x @ theta
    norm = np.linalg.norm(outputs)
    return float(norm), (x.T @ outputs / norm).astype(np.float32)


def add(*terms: Compute) -> Compute:
    def compute(batch: Batch, theta: Batch) -> tuple[float, Batch]:
        parts = [term(batch, theta) for term in terms]
        return sum(loss for loss, _ in parts), np.sum([g for _, g in parts], axis=0)

    return compute


def ask_terms(
    simulator: Simulator, terms: Sequence[Compute], exchange: str = ""
) -> Evidence:
    """What a simulated program shows, with each of its terms alone."""
    evidence = note(simulator.make_evidence(), exchange)
    probes = dict(evidence.probes)
    for number, compute in enumerate(terms):
        alone = Simulator(compute)
        values: dict[TraceKey, Value] = {}
        repeated: dict[int, dict[TraceKey, Value]] = {2: {}, 3: {}}
        for step in range(3):
            theta = evidence.get_before(step, "variable", "kernel")
            assert isinstance(theta, np.ndarray)
            batch = simulator.draw(step)
            loss, gradient = alone.run(batch, theta)
            put(values, step, "loss", loss)
            put(values, step, "local_gradient", gradient)
            alone.put_shards(values, step, batch, theta)
            if step == 0:
                for times, found in repeated.items():
                    alone.put_shards(found, step, batch, theta, times=times)
        probes[f"term-{number}"] = simulator.make_trace(values)
        probes[f"term-{number}-doubled"] = simulator.make_trace(repeated[2])
        probes[f"term-{number}-tripled"] = simulator.make_trace(repeated[3])
    return replace(evidence, probes=probes)


MEANS = add(mean_squares, measure_outputs)
SHARES = add(sum_squares, measure_outputs)


def test_without_the_terms_nobody_tells_what_an_own_mean_counts() -> None:
    judgement = judge(note(Simulator(MEANS).make_evidence(), ""))
    assert judgement.status is Status.PASS
    assert "cannot be judged" in judgement.message


def test_an_own_mean_beside_a_norm_is_told_by_its_terms() -> None:
    evidence = ask_terms(Simulator(MEANS), (mean_squares, measure_outputs))
    first = judge(evidence).findings[0]
    assert (first.code, first.phase) == ("loss-not-scaled", "loss")


def test_shares_of_a_mean_beside_a_norm_pass_and_are_judged() -> None:
    simulator = Simulator(MEANS, on_cluster=SHARES)
    judgement = judge(ask_terms(simulator, (mean_squares, measure_outputs)))
    assert judgement.status is Status.PASS, judgement.findings
    assert "compared with its own shard" in judgement.message


def test_what_a_norm_counts_is_left_open() -> None:
    """Some divide it by N, and some do not: nobody says what is meant."""

    def half(batch: Batch, theta: Batch) -> tuple[float, Batch]:
        norm, gradient = measure_outputs(batch, theta)
        return norm / 2, gradient / 2

    for terms in (SHARES, add(sum_squares, half)):
        simulator = Simulator(MEANS, on_cluster=terms)
        judgement = judge(ask_terms(simulator, (mean_squares, measure_outputs)))
        assert judgement.status is Status.PASS, judgement.findings


def test_replicas_that_count_together_are_left_alone() -> None:
    simulator = Simulator(MEANS)
    evidence = ask_terms(simulator, (mean_squares, measure_outputs), exchange="data")
    assert judge(evidence).status is Status.PASS


def test_gradients_that_are_not_finite_tell_nothing_of_what_a_term_counts() -> None:
    evidence = ask_terms(
        Simulator(MEANS, lambda *_: np.nan), (mean_squares, measure_outputs)
    )
    assert settle_terms(evidence, measure_noise(evidence)) is evidence
