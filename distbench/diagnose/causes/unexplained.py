"""What is said of wrong values that no cause explains."""

from __future__ import annotations

from dataclasses import replace

from distbench.diagnose.causes.constraint import describe_constraint
from distbench.diagnose.causes.exchange import describe_exchange
from distbench.diagnose.causes.explain import Explained, explain_all
from distbench.diagnose.causes.rank import LEAST, Ranked
from distbench.diagnose.clues.addends import describe_untouched
from distbench.diagnose.clues.astray import describe_astray
from distbench.diagnose.clues.context import Context
from distbench.diagnose.clues.own_shard import describe_alone
from distbench.diagnose.hypotheses.missed import describe_places
from distbench.split import tell_split
from distbench.trace import COMPUTED

_AT_PLACE = (
    "Mend what is made there: it has to be one device's, or shares that add up to it."
)
_READINGS = (
    (describe_constraint, "Apply the constraint after each step, on both sides."),
    (describe_astray, _AT_PLACE),
    (
        describe_alone,
        "Make it of all replicas' examples before it is used (all_reduce, all_gather).",
    ),
    (
        describe_exchange,
        "Hold each of these against what one device has of the global batch.",
    ),
    (describe_untouched, "Do the same to the gradient on both sides."),
)
"""What is known of values without a cause: the first that has something to say, and
what to do then."""


def leave_unexplained(context: Context, best: Ranked | None) -> Explained:
    """All wrong values as unexplained, with what is known of them.

    Args:
        context: Of the phase.
        best: The cause that comes nearest.
    """
    words, advice = describe_places(context)
    if words:
        astray = describe_astray(context)
        words += f"; {astray}" if astray else ""
    else:
        words, advice = _tell_known(context)
        words = words or f"no known cause explains what is wrong{_tell_nearest(best)}"
        words += _advise_even(context)
    left = explain_all(context, "unexplained", words, confidence=0.0)
    return replace(left, advice=advice)


def _tell_known(context: Context) -> tuple[str, str]:
    for describe, advice in _READINGS:
        words = describe(context)
        if words:
            return words, advice
    return "", ""


def _tell_nearest(best: Ranked | None) -> str:
    if best is None or best.is_chance or best.confidence < LEAST:
        return ""
    code, share = best.hypothesis.code, best.confidence
    return f"; nearest is {code}, which explains {share:.0%} of it"


def _advise_even(context: Context) -> str:
    if context.phase not in COMPUTED or not context.is_uneven:
        return ""
    sizes = ", ".join(map(str, context.shards))
    return (
        f". Shards have {sizes} examples here; if the program needs even ones, "
        f"check it with {tell_split(context.shards)}"
    )
