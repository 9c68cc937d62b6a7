"""What a shard with all its examples several times tells of a program on one device.

A sum doubles with its examples, and a mean stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from distbench.compare.arrays.bounds import find_t_quantile
from distbench.compare.arrays.noise import Noise
from distbench.compare.arrays.pull import Pull, apply_pull, fit_pull, tells_pull
from distbench.compare.arrays.ratio import SAME, share_by_size
from distbench.evidence import Evidence
from distbench.trace import WHOLE, Trace, TraceKey
from distbench.trace.numbers import Array, densify, measure_finite, measure_size

Kind = Literal["sum", "mean", "terms"]
Places = Mapping[tuple[str, int], Array]
"""Gradients by variable and call."""
Margins = Mapping[tuple[str, int], float]
"""How far equal gradients may lie apart, by variable and call."""
PLAIN = 64
"""So many times as large as a margin is what no rounding makes."""
REPEATED = {"doubled": 2, "tripled": 3}
"""The probes of shards whose examples are repeated, and how many times."""
AGAIN = "quadrupled"
"""The largest shard of the first step alone, to prove what the others seem to tell."""


def take_gradients(trace: Trace, replica: int, step: int = 0) -> Places:
    """The local gradients of a replica, or of `WHOLE`, in a step."""
    found = trace.select(step=step, phase="local_gradient", replica=replica)
    return {(key.variable, key.call): densify(value) for key, value in found}


def find_kind(
    evidence: Evidence, noise: Noise, margins: Margins, shards: list[Places]
) -> Kind | None:
    """What a doubled shard tells: a sum doubles, a mean stays as it is."""
    doubled = evidence.probes.get("doubled")
    replica = int(np.argmax(evidence.reference.shards))
    once = shards[replica]
    twice = {} if doubled is None else take_gradients(doubled, replica)
    if set(twice) != set(once):
        return None
    if "once" in evidence.probes:
        doubles = _doubles_on_average(evidence, noise, margins, replica)
    else:
        doubles = _doubles(once, twice, margins)
    return None if doubles is None else "sum" if doubles else "mean"


def find_loss_kind(evidence: Evidence, noise: Noise, lost: float) -> Kind | None:
    """Whether the returned loss is a sum or a mean over the examples.

    Its gradients may be of another kind: a program may return a sum and divide its
    gradients by their norm, for example.
    """
    doubled = evidence.probes.get("doubled")
    replica = int(np.argmax(evidence.reference.shards))
    key = TraceKey(step=0, phase="loss", variable="", replica=replica)
    once = evidence.reference.get(key)
    twice = None if doubled is None else doubled.get(key)
    if once is None or twice is None or "once" in evidence.probes:
        return None
    place, value = (key.variable, key.call), densify(once)
    margin = noise.find_margin(key.at(WHOLE), value).widest
    margins = {place: max(margin, lost * measure_size(value))}
    doubles = _doubles({place: value}, {place: densify(twice)}, margins)
    return None if doubles is None else "sum" if doubles else "mean"


def grows_alike(evidence: Evidence, noise: Noise, lost: float) -> bool:
    """Whether the returned loss grows alike with each repetition of the examples.

    That of in-batch negatives, log Σ exp, has log k more with every example k times,
    which is neither a sum nor a mean, and leaves no trace in its gradients. Such a loss
    cannot be taken apart into what adds up and what is there whatever the examples are.
    """
    found = list_losses(evidence, int(np.argmax(evidence.reference.shards)))
    return not found or are_terms(found, find_loss_margins(noise, found, lost))


def find_loss_margins(
    noise: Noise, repeated: Sequence[Places], lost: float, step: int = 0
) -> Margins:
    """How far losses of a step may lie apart that are repeated: see `list_losses`."""
    key = TraceKey(step=step, phase="loss", variable="")
    margin = noise.find_margin(key, repeated[0]["", 0]).widest
    return {("", 0): max(margin, lost * measure_size(repeated[-1]["", 0]))}


def _doubles(once: Places, twice: Places, margins: Margins) -> bool | None:
    """Whether all gradients double (True), stay the same (False), or neither (None).

    Elements that are not finite, once or twice, tell nothing.
    """
    if not any(np.isfinite(twice[p] - once[p]).any() for p in once):
        return None
    rests: dict[int, float] = {}
    for times in (1, 2):
        errors = {p: measure_finite(twice[p] - times * once[p]) for p in once}
        if all(errors[p] <= 4 * margins[p] for p in once):
            rests[times] = sum(errors.values())
    return min(rests, key=lambda times: rests[times]) == 2 if rests else None


def find_terms(
    evidence: Evidence, margins: Margins, shards: list[Places]
) -> Kind | None:
    """Whether terms that are sums, and others that are means, make up the gradients.

    A shard with its examples k times then gives k s + m, the same again for each k. As
    examples come there and back, so do the halves of a shard at first: what counts the
    first half a of a batch and not the second one b gives a, a + b and a + 2 b. Four
    times it gives 2 a + 2 b, which is no further b.
    """
    found = list(_repeat_largest(evidence, shards))
    replica = int(np.argmax(evidence.reference.shards))
    fourth = evidence.probes.get(AGAIN)
    if found and fourth is not None:
        found.append(take_gradients(fourth, replica))
    if not found or set(found[-1]) != set(found[0]):
        return None
    rows = zip(found, found[1:], found[2:], strict=False)
    return "terms" if all(are_terms(row, margins) for row in rows) else None


def find_limit(
    evidence: Evidence, margins: Margins, whole: Places, shards: list[Places]
) -> Kind | None:
    """Whether gradients come to rest as examples are repeated, as those of a mean do.

    Bessel's correction, or an example that is not compared with itself, leaves what
    shrinks with their number: m + c / k, of which each further repetition changes less
    than half as much (c / 2, then c / 6), where a sum goes on as it began. So does a
    likelihood of all examples together, to which a repetition has little to add, but
    others have much. The whole batch tells: that of a mean is nearer to the mean of its
    shards than to their sum.
    """
    found = _repeat_largest(evidence, shards)
    if not found:
        return None
    once, twice, thrice = found
    rests = all(
        measure_size(thrice[p] - twice[p])
        <= max(4 * margins[p], measure_size(twice[p] - once[p]) / 2)
        for p in once
    )
    sizes = evidence.reference.shards
    is_mean = _is_nearer(whole, shards, share_by_size(sizes))
    return "mean" if rests and is_mean else None


def are_terms(repeated: Sequence[Places], margins: Margins) -> bool:
    """Whether gradients grow alike with each repetition of their examples."""
    once, twice, thrice = repeated
    return all(
        measure_size(once[p] - 2 * twice[p] + thrice[p]) <= 8 * margins[p] for p in once
    )


def adds_up_beside_common(
    evidence: Evidence, whole: Places, shards: list[Places], step: int
) -> bool | None:
    """Whether shards make up the whole, but for what each has whatever its examples.

    The largest one with its examples k times gives k s + m, where m is what all have in
    common: then the whole is the sum of the shards less N - 1 times m. None where runs
    draw other random numbers, nobody repeated the examples, or a shard has no gradient
    of its own for what the whole has one for.

    Args:
        evidence: With one device's shards.
        whole: What one device gives for all examples.
        shards: What the shards alone give.
        step: Of which step.
    """
    found = _repeat_largest(evidence, shards, step)
    if not found or any(set(shard) != set(whole) for shard in shards):
        return None
    once, twice, thrice = found
    for place, value in whole.items():
        total = np.sum([shard[place] for shard in shards], axis=0)
        common = 2 * once[place] - twice[place]
        size = max(measure_size(shard[place]) for shard in shards)
        rests = (
            once[place] - 2 * twice[place] + thrice[place],
            total - (len(shards) - 1) * common - value,
        )
        if any(measure_size(rest) > SAME * size for rest in rests):
            return False
    return True


def list_repeated(
    evidence: Evidence, shard: Places, replica: int, step: int = 0
) -> tuple[Places, ...]:
    """The gradients of a shard, with its examples once, twice and three times.

    Nothing where runs draw other random numbers, or have other gradients.
    """
    found = [shard]
    for name in REPEATED:
        probe = evidence.probes.get(name)
        found.append({} if probe is None else take_gradients(probe, replica, step))
    if "once" in evidence.probes or any(set(f) != set(shard) for f in found):
        return ()
    return tuple(found)


def list_losses(evidence: Evidence, replica: int, step: int = 0) -> tuple[Places, ...]:
    """The losses of a shard, with its examples once, twice and three times.

    Nothing where these are not known, or runs draw other random numbers.
    """
    key = TraceKey(step=step, phase="loss", variable="", replica=replica)
    probes = [evidence.probes.get(name) for name in REPEATED]
    traces = [evidence.reference, *filter(None, probes)]
    found = [value for trace in traces if (value := trace.get(key)) is not None]
    if "once" in evidence.probes or len(found) <= len(REPEATED):
        return ()
    return tuple({("", 0): densify(value)} for value in found)


def _repeat_largest(
    evidence: Evidence, shards: list[Places], step: int = 0
) -> tuple[Places, ...]:
    replica = int(np.argmax(evidence.reference.shards))
    return list_repeated(evidence, shards[replica], replica, step)


def _is_nearer(whole: Places, shards: list[Places], weights: Sequence[float]) -> bool:
    """Whether the whole is nearer to a weighted sum of its shards than to their sum."""

    def measure(factors: Sequence[float]) -> float:
        return sum(
            measure_size(
                value - sum(f * s[p] for f, s in zip(factors, shards, strict=True))
            )
            for p, value in whole.items()
        )

    return measure(weights) < measure([1.0] * len(shards))


def _doubles_on_average(
    evidence: Evidence, noise: Noise, margins: Margins, replica: int
) -> bool | None:
    """Whether loss and gradients double on average over many random draws.

    In a doubled shard each example gets other random numbers, so a single run tells
    nothing; the mean over many draws doubles, or stays as it is. The test is Student's:
    the scatter is known from the draws alone. None unless exactly one of the two fits.
    """

    def fits(times: int) -> bool:
        return all(
            _is_centred(gaps, 4 * max(margins.get((key.variable, key.call), 0), margin))
            for key, gaps in _list_gaps(evidence, replica, times)
            for margin in (noise.find_margin(key.at(WHOLE), gaps).widest,)
        )

    doubles = fits(2)
    return None if doubles == fits(1) else doubles


def _list_gaps(
    evidence: Evidence, replica: int, times: int
) -> Iterator[tuple[TraceKey, Array]]:
    """By place, how far each draw of the double is from so many times the single."""
    once, twice = evidence.probes["once"], evidence.probes["twice"]
    for key, _ in once.select(step=0, replica=replica):
        found = [
            (once.get(place), twice.get(place))
            for draw in range(once.steps)
            for place in (replace(key, step=draw),)
        ]
        gaps = [
            densify(right) - times * densify(left)
            for left, right in found
            if left is not None and right is not None
        ]
        if len(gaps) > 1:
            yield key, np.stack(gaps)


def _is_centred(gaps: Array, margin: float) -> bool:
    """Whether samples may have mean 0, but for a margin: an array of [draws, ...]."""
    count = len(gaps)
    error = np.std(gaps, axis=0, ddof=1) / math.sqrt(count)
    allowed = find_t_quantile(count - 1) * error + margin
    return bool(np.all(np.abs(np.mean(gaps, axis=0)) <= allowed))


def find_pulls(
    evidence: Evidence, margins: Margins, shards: list[Places]
) -> Mapping[str, Pull] | None:
    """The penalty of a program that sums: what a doubled shard does not double.

    d + p and 2 d + p give p. None unless that is the gradient of a penalty on each
    variable, a θ + b sign(θ) with one sign.
    """
    replica = int(np.argmax(evidence.reference.shards))
    doubled = evidence.probes.get("doubled")
    once = shards[replica]
    twice = {} if doubled is None else take_gradients(doubled, replica)
    if set(twice) != set(once):
        return None
    found: dict[str, Pull] = {}
    for place, margin in margins.items():
        rest = 2 * once[place] - twice[place]
        if measure_size(rest) <= 4 * margin:
            continue
        state = evidence.get_before(0, "variable", place[0])
        if state is None or densify(state).shape != rest.shape:
            return None
        theta = densify(state)
        if not tells_pull(theta):
            theta, rest = _join_steps(evidence, replica, place, theta, rest)
        pull = fit_pull(theta, rest)
        if pull is None or measure_size(rest - apply_pull(pull, theta)) > 4 * margin:
            return None
        found[place[0]] = pull
    return found or None


def _join_steps(
    evidence: Evidence,
    replica: int,
    place: tuple[str, int],
    theta: Array,
    rest: Array,
) -> tuple[Array, Array]:
    """A variable, and what its gradient does not double, in all steps: the first's."""
    reference, doubled = evidence.reference, evidence.probes["doubled"]
    thetas, rests = [theta.ravel()], [rest.ravel()]
    for step in range(1, reference.steps):
        once = take_gradients(reference, replica, step).get(place)
        twice = take_gradients(doubled, replica, step).get(place)
        state = evidence.get_before(step, "variable", place[0])
        if once is not None and twice is not None and state is not None:
            thetas.append(densify(state).ravel())
            rests.append((2 * once - twice).ravel())
    return np.concatenate(thetas), np.concatenate(rests)
