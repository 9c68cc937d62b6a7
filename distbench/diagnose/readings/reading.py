"""What an evidence may be held against, where one device alone does not settle it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from distbench.compare.arrays.noise import Noise
from distbench.compare.arrays.spoilt import find_spoilt, overflow_alone
from distbench.compare.nature.factor import Factors
from distbench.compare.nature.given import (
    exchanges,
    give_exchanged,
    makes_whole_exchanged,
)
from distbench.compare.nature.grouping import (
    Nature,
    find_nature,
    is_grouped_throughout,
    name_terms,
)
from distbench.compare.nature.met import goes_on_from_gradients, take_met
from distbench.compare.nature.own_losses import has_own_losses
from distbench.compare.nature.shards import find_shares, judges_losses, weigh_shards
from distbench.compare.state.joint import is_led_by_kept
from distbench.compare.state.led import find_own_statistic
from distbench.compare.state.measured_noise import measure_noise, measure_rounded
from distbench.diagnose.causes.exchange import (
    OVERFLOWS,
    OWN_LOSSES,
    UPDATED_BETWEEN,
    describe_own_statistic,
    follows_updates,
    hides_gradients,
    is_joined,
    is_of_all,
    means_whole,
)
from distbench.diagnose.seeds import find_own_draws
from distbench.evidence import Evidence
from distbench.trace import COMPUTED, PHASES, WHOLE, Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """An evidence with what its reference is good for.

    Attributes:
        evidence: What to compare.
        note: What the user should know of it; empty where all is known.
        undecided: Why nobody can tell whether a run is right that is so by this; else
            empty.
        noise: How far correct runs are apart by it; None where that is known.
        settles: Whether nothing else can be meant: what is wrong by it is wrong, and
            what its noise hides is hidden.
        is_last: Whether to ask it only where none before says what is wrong.
        of_own: Whether what each replica makes of its own shard alone, and one device
            does not make of all, is taken for meant.
    """

    evidence: Evidence
    note: str = ""
    undecided: str = ""
    noise: Noise | None = None
    settles: bool = False
    is_last: bool = False
    of_own: bool = False

    @property
    def first_known(self) -> bool:
        """Whether loss and local gradients can be judged at all."""
        return "local_gradient" in self.evidence.measure.known


def list_readings(evidence: Evidence, noise: Noise) -> Iterator[Reading]:
    """What to try where the global batch on one device is not arrived at.

    A program whose result depends on the grouping of its examples cannot arrive at it,
    and one that computes in a narrow dtype only within much rounding. Replicas are then
    held against their own shards, where bits repeat; where nothing says how these are
    to be weighed, against what follows from their own gradients. Losses that are made
    of the features of all replicas have no other meaning than the global batch, and
    none at all where these depend on statistics of the own examples.
    """
    yield from tuple(_let_meet(evidence)) or _list_others(evidence, noise)


def takes_shards(evidence: Evidence) -> bool:
    """Whether a shard alone, and not the global batch, says what a replica has."""
    with np.errstate(all="ignore"):  # shards may overflow
        noise = measure_noise(evidence)
        if is_of_all(evidence) or is_joined(evidence, noise):
            return False
        return find_nature(evidence, noise).grouped


def _list_others(evidence: Evidence, noise: Noise) -> Iterator[Reading]:
    nature = find_nature(evidence, noise)
    is_hidden = hides_gradients(evidence)
    if means_whole(evidence, nature) or (is_hidden and not nature.lost):
        yield from _leave_open(evidence, noise)
        yield from _leave_updated(evidence, noise)
        return
    if (exchanges(evidence, "features") or is_hidden) and nature.lost:
        yield from _round_whole(evidence, nature, noise)
    words = "note: rounding hides what one device makes of the global batch, so"
    if nature.grouped:
        order = "" if evidence.counted is None else ", and on their order"
        words = (
            "note: on one device the result depends on which examples are together in "
            f"a batch{order}, so"
        )
        if is_led_by_kept(evidence, noise):
            words = (
                "note: the result depends on what each replica has kept of its own "
                "examples, so"
            )
    place = find_own_draws(evidence) if repeats(evidence) else ""
    if place:
        nature = name_terms(evidence, noise, nature)
    if evidence.tier != "free":  # which has left the reference behind after a step
        yield from _list_shards(evidence, nature, words, place)
    if nature.lost:
        yield from _list_rounded(evidence, nature, noise)
    if place and evidence.tier == "free":
        yield _leave_rest(evidence, _tell_draws(place))
    elif nature.grouped:
        yield replace(_leave_rest(evidence, words), of_own=True)


def _list_shards(
    evidence: Evidence, nature: Nature, words: str, place: str
) -> Iterator[Reading]:
    """Each replica's own shard, where one device says what it counts."""
    if nature.kind is None:
        return
    if nature.kind == "terms" and exchanges(evidence, "data"):
        return  # nobody says which of them is divided by a count over all
    if nature.kind == "mean" and not nature.grouped and overflow_alone(evidence):
        return  # of a loss that is N times a replica's, and the whole is a measure
    if place:
        yield _weigh_first(evidence, nature, place)
    if nature.grouped or nature.lost:
        yield from _weigh(evidence, nature, words)


def _list_rounded(
    evidence: Evidence, nature: Nature, noise: Noise
) -> Iterator[Reading]:
    """The global batch, where shards alone round otherwise than replicas do."""
    if _rounds_counted(evidence, nature, noise):
        yield from _round_whole(evidence, nature, noise)
    elif not nature.grouped:
        # So do terms that replicas weigh, and what a narrow dtype loses may hide of
        # what kinds they are.
        for reading in _round_whole(evidence, nature, noise):
            yield replace(reading, settles=False, is_last=True)


def _leave_rest(evidence: Evidence, words: str) -> Reading:
    """What follows from loss and local gradients, if one device was given these."""
    rest = "loss and local gradients cannot be judged, only what follows from them"
    if not evidence.fed.replays:
        rest = (
            "one device is no measure, and was not given the gradients that were "
            "observed for an update; use the tier bounded, without XLA"
        )
    return _leave_first(evidence, note=f"{words} {rest}")


def _tell_draws(place: str) -> str:
    return f"note: each replica draws random numbers by its own number, at {place}, so"


def _let_meet(evidence: Evidence) -> Iterator[Reading]:
    """Each replica's own shard, that goes on from the gradients of all of them.

    Where losses hold features of other replicas by way of gradients alone, and the
    global batch is no measure: one device says what shards come to that meet, if they
    start where the replicas do.
    """
    is_led = "met-sum" in evidence.probes and goes_on_from_gradients(evidence)
    given = give_exchanged(evidence) if is_led else None
    if given is None or evidence.reference.draws:
        return
    # Shards that go on from their own sums alone may have no nature at all.
    noise = measure_noise(given)
    nature = find_nature(given, noise)
    met = take_met(given, nature)
    if met is None or not nature.grouped:
        return
    if evidence.tier == "free":
        yield _leave_first(evidence, note=UPDATED_BETWEEN)
        return
    words = (
        "note: on one device the result depends on which examples are together in a "
        "batch, and a loss on gradients of all replicas, so"
    )
    # What follows from gradients that were seen says better which of them are wrong.
    left = replace(nature, grouped=not evidence.subject.undetermined)
    for reading in _weigh(met, left, words):
        # Of losses that are shared out otherwise the sum is right, or nothing is.
        yield replace(reading, noise=noise, settles=reading.evidence.measure.summed)


def _rounds_counted(evidence: Evidence, nature: Nature, noise: Noise) -> bool:
    """Whether a narrow dtype alone keeps a loss by counts from being the whole's.

    A count over all scales a loss before its gradient, which then rounds otherwise than
    that of a shard alone. Shards that are given the count make up the global batch.
    """
    is_rounded = exchanges(evidence, "data") and nature.lost > 0
    return is_rounded and (not nature.grouped or makes_whole_exchanged(evidence, noise))


def _leave_open(evidence: Evidence, noise: Noise) -> Iterator[Reading]:
    """Nothing, where something of the own examples comes before all that is known."""
    own = find_own_statistic(evidence, noise)
    words = "" if own is None else describe_own_statistic(evidence, own)
    if not words and hides_gradients(evidence) and has_own_losses(evidence, noise):
        words = OWN_LOSSES
    if words:
        yield _leave_first(evidence, undecided=words)


def _leave_updated(evidence: Evidence, noise: Noise) -> Iterator[Reading]:
    """What follows from gradients, where an update makes the others of all examples."""
    if (
        follows_updates(evidence)
        and is_grouped_throughout(evidence, noise)
        and not makes_whole_exchanged(evidence, noise)
    ):
        yield _leave_first(evidence, note=UPDATED_BETWEEN)


def _leave_first(evidence: Evidence, *, note: str = "", undecided: str = "") -> Reading:
    """Judge what follows from loss and local gradients, and not these themselves."""
    return Reading(
        evidence=_limit(evidence, known=()),
        note=note,
        is_last=True,
        undecided=undecided,
    )


def _round_whole(evidence: Evidence, nature: Nature, noise: Noise) -> Iterator[Reading]:
    """The global batch, as far as the narrow dtype of the step leaves it a measure.

    What other replicas have part in makes a loss that no shard has, so a replica cannot
    be held against its own. How far rounding moves the global batch's is measured.
    """
    if evidence.reference.draws:
        return
    left_open = list(_leave_open(_limit(evidence, lost=nature.lost), noise))
    yield from left_open
    spoilt = find_spoilt(evidence)
    is_never_finite = len(spoilt) == evidence.reference.steps
    if is_never_finite and nature.kind != "sum" and overflow_alone(evidence):
        yield replace(
            _leave_first(evidence, undecided=OVERFLOWS),
            evidence=_limit(evidence, known=("loss",)),
        )
        return
    untold = spoilt | evidence.measure.parted
    rounded = None if left_open else measure_rounded(evidence, untold)
    if rounded is not None:
        known = COMPUTED
        is_clipped = not nature.grouped and _reduces_no_multiple(evidence, spoilt)
        if hides_gradients(evidence) or is_clipped:
            known = (*known, "reduced_gradient")
        limited = _limit(evidence, known=known, lost=nature.lost)
        measure = replace(limited.measure, spoilt=spoilt)
        yield Reading(
            evidence=replace(limited, measure=measure),
            note="note: the step computes in a narrower dtype than that of its "
            "variables; losses and gradients are compared with one device's as far as "
            "a rounding of the variables to that dtype leaves them alone",
            noise=rounded,
            # A count over all may also be a known mistake of what shards alone give.
            settles=not exchanges(evidence, "data"),
        )


def _reduces_no_multiple(evidence: Evidence, spoilt: frozenset[int]) -> bool:
    """Whether one device makes something else of finite gradients than a multiple."""
    made = Factors(evidence.reference)
    found = evidence.reference.select(phase="reduced_gradient", replica=WHOLE)
    return any(key.step not in spoilt and made.find(key) is None for key, _ in found)


def _weigh(evidence: Evidence, nature: Nature, words: str) -> Iterator[Reading]:
    """Each replica's own shard, by its size or by what all of them count."""
    counted = nature.kind == "mean" and exchanges(evidence, "data")
    weighed = weigh_shards(evidence, nature, find_shares(evidence) if counted else None)
    but = (
        ""
        if judges_losses(evidence, nature)
        else ", but for the losses that they return"
    )
    note = f"{words} each replica is compared with its own shard on one device{but}"
    yield Reading(evidence=weighed, note=note, of_own=nature.grouped)
    yield Reading(
        evidence=replace(weighed, measure=replace(weighed.measure, summed=True)),
        note=f"{words} the replicas are compared with the sum of their shards on "
        f"one device{but}",
        of_own=nature.grouped,
    )


def _weigh_first(evidence: Evidence, nature: Nature, place: str) -> Reading:
    """The first replica alone, where each draws random numbers by its own number.

    That of one device is the first one's as well. The others' loss and gradients have
    no reference, but what follows from them has.
    """
    weighed = weigh_shards(evidence, nature)
    kept = {
        key: value
        for key, value in weighed.reference.values.items()
        if key.phase not in COMPUTED or key.replica == 0
    }
    known = tuple(phase for phase in weighed.measure.known if phase in COMPUTED)
    return Reading(
        evidence=replace(
            weighed,
            reference=replace(weighed.reference, values=kept),
            measure=replace(weighed.measure, known=known),
        ),
        note=f"{_tell_draws(place)} the first one alone is compared with its own shard "
        "on one device, and of the others what follows from their loss and local "
        "gradients",
    )


def _limit(
    evidence: Evidence, *, known: tuple[Phase, ...] = PHASES, lost: float = 0.0
) -> Evidence:
    """Return the evidence with fewer phases for which the whole batch is a measure."""
    measure = replace(evidence.measure, known=known, lost=lost)
    return replace(evidence, measure=measure)


def repeats(evidence: Evidence) -> bool:
    """Whether one device gives the same loss and gradients when it is run again."""
    return bool(evidence.reference.notes.get("repeats", True))
