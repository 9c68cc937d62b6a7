"""Says where in a program a wrong loss begins, where somebody has looked inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from distbench.compare.arrays.bounds import find_roundoff
from distbench.compare.arrays.ratio import (
    SAME,
    are_alike,
    are_same_factors,
    fit_common_ratio,
)
from distbench.compare.inside.intermediates import Astray, find_astray
from distbench.compare.inside.nearness import Array
from distbench.compare.inside.paired import join_rows
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.fit import fit_cases
from distbench.evidence import Inside
from distbench.trace import COMPUTED
from distbench.trace.numbers import name_value

_MOST = 3
"""So many places are named."""


def list_astray(context: Context) -> Sequence[Astray]:
    """The values with which the wrong losses begin, or what moves wrong state."""
    inside = context.evidence.inside
    if inside is None:
        return ()
    step = min(case.key.step for case in context.cases)
    moved: frozenset[str] = frozenset()
    if context.phase not in COMPUTED:
        paths = {case.key.variable for case in context.cases}
        infos = [context.infos[path] for path in paths if path in context.infos]
        moved = frozenset(paths | {info.of for info in infos})
    found = context.work_out(
        ("astray", step, moved), lambda: find_astray(inside, step, moved)
    )
    if not moved:
        return found
    # Losses are added up, and what is on the way to a step only where that is seen.
    return [one if one.joined == "sum" else replace(one, in_full="") for one in found]


def describe_astray(context: Context) -> str:
    """Where they begin, in words; empty where that is not known."""
    found = list_astray(context)
    if not found:
        return ""
    what = "loss" if all(one.of_loss for one in found) else "step"
    words = (
        f"what the {what} is made of first goes another way than on one device at "
        f"{_name_place(found[0])}: {_tell_values(found[0], find_meant(context))}"
    )
    others = _name_others(found)
    return f"{words}; so it does, by itself, at {others}" if others else words


def describe_own(inside: Inside) -> str:
    """A note of where what is taken of the own shard begins, if it shows in a loss.

    How many examples there are is nothing that is taken of them.
    """
    found = find_astray(inside, 0, sizes_count=False)
    if not found or not found[0].made.place:
        return ""
    others = _name_others(found)
    more = f", and at {others}" if others else ""
    return (
        f"note: what is taken of the own shard begins at {_name_place(found[0])}{more}"
    )


def find_meant(context: Context) -> float:
    """By what number all replicas may multiply a value, as what follows makes up.

    A count that is divided by N, and divides a loss that is divided by N: then the
    loss is wrong by N times what that value is, or by an N-th.

    Returns:
        1 where nothing makes up for a factor of N or 1/N.
    """
    times, n = find_times(list_astray(context)), context.replicas
    step = min(case.key.step for case in context.cases)
    fit = fit_cases(case for case in context.cases if case.key.step == step)
    if context.phase not in COMPUTED or not times or fit is None:
        return 1.0
    if fit.residual_share > SAME:
        return 1.0
    for meant in (1.0, 1 / n, float(n)):
        left = times / meant
        if any(are_same_factors(fit.ratio, one) for one in (left, 1 / left)):
            return meant
    return 1.0


def tell_place_of(context: Context, times: float) -> str:
    """Where all replicas have so many times what one device has, if that is it."""
    found = list_astray(context)
    seen = find_times(found)
    if seen is None or not are_alike([seen, times]) or not found[0].made.place:
        return ""
    return f", at {_name_place(found[0])}"


def _name_place(one: Astray) -> str:
    return f"{one.made.place}, `{one.made.line}`"


def _name_others(found: Sequence[Astray]) -> str:
    """The places of all but the first one."""
    others = list(dict.fromkeys(one.made.place for one in found[1:] if one.made.place))
    others = [place for place in others if place != found[0].made.place]
    more = len(others) - _MOST
    return ", ".join(others[:_MOST]) + (f" and {more} more" if more > 0 else "")


def _tell_values(one: Astray, meant: float) -> str:
    whole, parts = one.whole, one.parts
    rows = next(join_rows(whole, parts), None)
    if rows is not None:
        place = _find_worst(whole, [rows])
        told = (
            f"in element {list(map(int, place))} of all rows replicas have "
            f"{float(rows[place]):.6g} there, one device {float(whole[place]):.6g}"
        )
    elif any(part.shape != whole.shape for part in parts):
        sizes = ", ".join(str(part.shape) for part in parts)
        told = f"replicas have arrays of shape {sizes} there, one device {whole.shape}"
    else:
        place = _find_worst(whole, parts)
        at = "" if whole.ndim == 0 else f"in element {list(map(int, place))} "
        own = ", ".join(f"{float(part[place]):.6g}" for part in parts)
        told = f"{at}replicas have {own} there, one device {float(whole[place]):.6g}"
    if one.of_one is not None:
        return f"{told}: all have what the examples of replica {one.of_one} alone give"
    if one.is_alike and not one.is_own:
        ratio = _tell_times(find_times([one]), meant, len(parts))
        return f"{told}{ratio}; all have the same, so look at what they exchange"
    if why := _tell_kind(one):
        return f"{told}: {why}"
    ending = (
        f", and they go on with the plain {one.joined} of that" if one.joined else ""
    )
    if one.is_own:
        return f"{told}: each has what its own examples alone give{ending}"
    if one.of_share:
        return (
            f"{told}: each takes its own addend of a sum over all for the whole of it"
        )
    return told


def _tell_kind(one: Astray) -> str:
    """What becomes of addends, or of micro-batches, there; empty if it is neither."""
    if one.of_cut:
        return (
            "what is divided there is one device's in all micro-batches together, and "
            "each is divided by its own count, so that examples weigh by the "
            "micro-batch that they are in, and a shard is cut into others than the "
            "global batch"
        )
    if one.in_full == "numbers":
        return _tell_number(one)
    if one.in_full == "limit":
        return (
            "each holds its own addend of a sum over all against a limit for that sum; "
            "add up over all replicas first, and share what comes of it"
        )
    return "each adds in full what is the same on all" if one.in_full else ""


def _tell_number(one: Astray) -> str:
    """What becomes of a number that each replica adds to its addend of a sum.

    Of a mean nobody knows here whether the rest of the loss makes up for an N-th.
    """
    count = len(one.parts)
    if one.joined == "mean":
        return (
            "each adds the same number, and what they go on with is the mean of that, "
            f"1/{count} of a sum that has the number {count} times; take the sum, "
            "unless the rest of the loss makes up for that, and add the number once, "
            "behind it"
        )
    return (
        f"each adds the same number before the sum, which has it {count} times so; add "
        "it once, behind the sum"
    )


def _tell_times(times: float | None, meant: float, n: int) -> str:
    if times is None:
        return ""
    if meant == 1:
        return f", {times:.6g} times as much"
    share = f"1/{n} of that" if meant < 1 else f"{n} times that"
    return (
        f": {times / meant:.6g} times {share}, for which the rest of the loss makes up"
    )


def _find_worst(whole: Array, parts: Sequence[Array]) -> tuple[np.intp, ...]:
    """Where addends miss the sum by most, or else a replica what one device has."""
    values = [np.asarray(part, np.float64) for part in parts]
    each = np.max([np.abs(value - whole) for value in values], axis=0)
    summed = np.abs(np.sum(values, axis=0) - whole)
    are_addends = len(parts) > 1 and 0 < np.sum(summed) < np.sum(each)
    worst = np.argmax(summed if are_addends else each)
    return np.unravel_index(int(worst), whole.shape)


def find_times(found: Sequence[Astray]) -> float | None:
    """How many times what one device has all replicas have, if that is all there is."""
    pairs = [
        (one.parts[0].astype(np.float64), one.whole.astype(np.float64)) for one in found
    ]
    if not all(one.is_alike and one.of_one is None for one in found):
        return None
    if any(part.shape != whole.shape for part, whole in pairs):
        return None
    fit = fit_common_ratio(pairs)
    # Of a narrow dtype a multiple is rounded as well.
    lost = max([SAME, *(find_roundoff(name_value(one.parts[0])) for one in found)])
    return None if fit is None or fit.residual_share > lost else fit.ratio
