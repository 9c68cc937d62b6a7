"""Losses of a linear model with their gradients: sums, means, statistics, mixtures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Shards = tuple[int, ...]
SHARDS: Shards = (6, 4, 3)
EXAMPLES = sum(SHARDS)
WIDTH = 18
Batch = np.ndarray
Compute = Callable[[Batch, Batch], tuple[float, Batch]]
"""Loss and gradient of a batch [n, WIDTH + 1] at theta [WIDTH]."""


def sum_squares(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """Half the squared error, summed and divided by G."""
    x, y = batch[:, :-1], batch[:, -1]
    rest = x @ theta - y
    return float(0.5 * rest @ rest / EXAMPLES), x.T @ rest / np.float32(EXAMPLES)


def with_penalty(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """The same, and a penalty in full."""
    loss, gradient = sum_squares(batch, theta)
    return loss + float(theta @ theta), gradient + 2 * theta


def with_constant_pull(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """A sum, and a term in full whose gradient depends neither on theta nor on data."""
    loss, gradient = sum_squares(batch, theta)
    pull = np.linspace(0.5, 2, WIDTH, dtype=np.float32)
    return loss + float(theta @ pull), gradient + pull


def mean_squares(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """A mean over what the batch holds."""
    loss, gradient = sum_squares(batch, theta)
    times = np.float32(EXAMPLES / len(batch))
    return loss * float(times), gradient * times


def mean_by_weight(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """A mean weighted by a count that every example brings."""
    weights = np.ceil(4 * np.abs(batch[:, 0])).astype(np.float32)
    x, y = batch[:, :-1], batch[:, -1]
    rest = weights * (x @ theta - y)
    return float(0.5 * rest @ rest / weights.sum()), x.T @ rest / weights.sum()


def mean_by_weight_and_size(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """The same, times the batch's part of all examples."""
    loss, gradient = mean_by_weight(batch, theta)
    part = np.float32(len(batch) / EXAMPLES)
    return float(loss * part), gradient * part


def by_one_deviation(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """The sum of the squares, divided by one deviation of all that the batch holds."""
    loss, gradient = sum_squares(batch, theta)
    deviation = batch.std()
    return float(loss / deviation), gradient / deviation


def sum_beside_mean(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """The sum of the squares, and a mean of what the batch holds beside it."""
    return add_mean(batch, theta, 1.0)


def sum_beside_share(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """The same as a replica that is right has it: the mean weighs as its examples."""
    return add_mean(batch, theta, len(batch) / EXAMPLES)


def sum_beside_even_share(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """The same where every shard weighs as much."""
    return add_mean(batch, theta, 1 / len(SHARDS))


def add_mean(
    batch: Batch, theta: Batch, weight: float, compute: Compute = sum_squares
) -> tuple[float, Batch]:
    loss, gradient = compute(batch, theta)
    outputs = batch[:, :-1] @ theta
    loss += weight * float(np.mean(np.log(np.cosh(outputs))))
    beside = batch[:, :-1].T @ np.tanh(outputs) / np.float32(len(batch))
    return loss, gradient + np.float32(weight) * beside


def sum_beside_divided(
    batch: Batch, theta: Batch, count: int | None = None, power: int = 2
) -> tuple[float, Batch]:
    """The sum, and one beside it that is divided by the batch's size several times."""
    loss, gradient = sum_squares(batch, theta)
    share = np.float32(EXAMPLES / float(count or len(batch)) ** power)
    outputs = batch[:, :-1] @ theta
    loss += float(share * np.sum(np.log(np.cosh(outputs))))
    return loss, gradient + share * (batch[:, :-1].T @ np.tanh(outputs))


def sum_beside_divided_by_all(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """The same as a replica that is right has it: divided by the size of all."""
    return sum_beside_divided(batch, theta, EXAMPLES)


def sum_beside_logarithm(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """A sum that counts less the more examples there are: no power of their number."""
    loss, gradient = sum_beside_divided(batch, theta)
    times = np.float32(1 / np.log1p(len(batch)))
    return loss * float(times), gradient * times


def penalty_by_count(batch: Batch, theta: Batch, n: int = 1) -> tuple[float, Batch]:
    """The sum, and a penalty that is divided by the batch's size, and by replicas."""
    loss, gradient = sum_squares(batch, theta)
    share = np.float32(EXAMPLES / len(batch) / n)
    return loss + float(share * np.sum(theta**4)), gradient + 4 * share * theta**3


def penalty_by_count_and_replicas(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """The same where there are three of them."""
    return penalty_by_count(batch, theta, len(SHARDS))


def by_statistics(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """The sum, of examples that are divided by the deviation of their batch."""
    scaled = batch.copy()
    scaled[:, :-1] /= batch[:, :-1].std(axis=0) + np.float32(0.1)
    return sum_squares(scaled, theta)


def statistics_beside_mean(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """The sum of the same, and a mean of what the batch holds beside it."""
    return add_mean(batch, theta, 1.0, by_statistics)


def statistics_beside_share(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """As a replica that is right has it: the mean weighs as its examples."""
    return add_mean(batch, theta, len(batch) / EXAMPLES, by_statistics)


def statistics_beside_even_share(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """The same where every shard weighs as much."""
    return add_mean(batch, theta, 1 / len(SHARDS), by_statistics)


def statistics_beside_small_share(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """The share of the mean, divided by N once more."""
    weight = len(batch) / EXAMPLES / len(SHARDS)
    return add_mean(batch, theta, weight, by_statistics)


def mean_by_statistics(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """The mean of the same."""
    loss, gradient = by_statistics(batch, theta)
    times = np.float32(EXAMPLES / len(batch))
    return loss * float(times), gradient * times


def by_statistics_with_penalty(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """The sum, and a penalty of squares and absolute values in full."""
    loss, gradient = by_statistics(batch, theta)
    loss += float(theta @ theta / 4 + 0.25 * np.abs(theta).sum())
    return loss, gradient + theta / 2 + np.float32(0.25) * np.sign(theta)


def squares_in_half(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """The sum of the squares, all of it in float16."""
    half = batch.astype(np.float16)
    x, y = half[:, :-1], half[:, -1]
    rest = x @ theta.astype(np.float16) - y
    gradient = x.T @ rest / np.float16(EXAMPLES)
    return sum_squares(batch, theta)[0], gradient.astype(np.float32)


def penalised_squares_in_half(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """The same and a small penalty in full; more examples are rounded by themselves.

    As a GPU's kernels do it, which are chosen by the size of what they are given.
    """
    loss, gradient = squares_in_half(batch, theta)
    if len(batch) > EXAMPLES / 2:
        gradient = np.nextafter(gradient.astype(np.float16), np.float16(0))
    return loss, gradient.astype(np.float32) + np.float32(0.01) * theta


def mean_in_half(batch: Batch, theta: Batch, scale: float = 1.0) -> tuple[float, Batch]:
    """A mean under a loss scale, whose gradient may be more than float16 holds."""
    loss, gradient = sum_squares(batch, theta)
    times = EXAMPLES / len(batch)
    scaled = gradient * np.float32(times * scale)
    return loss * times, scaled.astype(np.float16).astype(np.float32)


def share_in_half(
    batch: Batch, theta: Batch, scale: float = 1.0
) -> tuple[float, Batch]:
    """What a replica has of that: its loss is multiplied by its share before."""
    share = len(batch) / EXAMPLES
    loss, gradient = mean_in_half(batch, theta, scale * share)
    return loss * share, gradient


def against_the_others(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """Every example against all others of its batch, summed and divided by G."""
    loss, gradient = mean_against_the_others(batch, theta)
    share = np.float32(len(batch) / EXAMPLES)
    return loss * float(share), gradient * share


def mean_against_the_others(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """The mean of the same: more of the same examples change it less and less."""
    x = batch[:, :-1]
    scores = x @ theta
    soft = np.exp(scores - scores.max())
    total = soft.sum() + 1
    loss = float(np.log(total) + scores.max() - scores.mean())
    return loss, (x * (soft / total)[:, None]).sum(axis=0) - x.mean(axis=0)


def sum_of_projected(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """The sum of two losses; one's gradient loses what it has along the other's."""
    squares, first = sum_squares(batch, theta)
    outputs = batch[:, :-1] @ theta
    second = batch[:, :-1].T @ np.tanh(outputs) / np.float32(EXAMPLES)
    loss = squares + float(np.sum(np.log(np.cosh(outputs))) / EXAMPLES)
    return loss, first + second - np.float32(first @ second / (first @ first)) * first


def sum_off_memory(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """The sum of the squares; its gradient loses what would undo a loss in common."""
    loss, gradient = sum_squares(batch, theta)
    kept = np.linspace(0.5, 2, WIDTH, dtype=np.float32)
    share = np.float32(min(float(gradient @ kept) / float(kept @ kept), 0.0))
    return loss, gradient - share * kept


def sum_of_unit_step(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """The sum of the squares; its gradient is divided by its norm."""
    loss, gradient = sum_squares(batch, theta)
    return loss, gradient / np.float32(np.linalg.norm(gradient))


def sum_of_steps_by_spread(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """The sum of the squares; its gradient is divided by its parts' deviations."""
    loss, gradient = sum_squares(batch, theta)
    parts = batch[:, :-1] * (batch[:, :-1] @ theta - batch[:, -1])[:, None]
    scale = np.float32(len(batch) / EXAMPLES)
    return loss, gradient / (scale * (parts.std(axis=0) + np.float32(0.1)))


def sum_of_unit_errors(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """The sum of the squares; what flows back through the errors has one length."""
    loss, _ = sum_squares(batch, theta)
    rest = batch[:, :-1] @ theta - batch[:, -1]
    return loss, batch[:, :-1].T @ (rest / np.linalg.norm(rest) / 8)


def of_all_together(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """What all examples say together: others add to it, the same ones again do not."""
    x, y = batch[:, :-1], batch[:, -1]
    noise = np.float32(0.01) * np.eye(len(batch), dtype=np.float32)
    rest = np.linalg.solve(x @ x.T + noise, x @ theta - y)
    loss = float((x @ theta - y) @ rest / EXAMPLES)
    return loss, np.float32(2 / EXAMPLES) * (x.T @ rest)


def of_halves(batch: Batch, theta: Batch) -> tuple[float, Batch]:
    """The squared error of a batch's first half alone, and no more of the second."""
    return sum_squares(batch[: len(batch) // 2], theta)
