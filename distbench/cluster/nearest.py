"""Why a text is no cluster spec, and which one may have been meant."""

from __future__ import annotations

import difflib
import re

from distbench.cluster.kind import outline
from distbench.cluster.kinds import KINDS
from distbench.cluster.numbers import COUNT, MOST, NUMBER
from distbench.cluster.wording import list_forms, write_grammar
from distbench.errors import BadInputError, find_near, suggest

_ANY_NUMBER = r"-?[0-9]+"


def explain_refusal(text: str, body: str, device: str) -> BadInputError:
    """The error of a text that is no spec: the grammar, and the nearest spec.

    Args:
        text: All of it.
        body: What stands before its `@`.
        device: What stands behind.
    """
    wrong = _find_wrong_number(body)
    if wrong:
        nearest = _find_nearest(re.sub(_ANY_NUMBER, _bring_near, body), device)
        return BadInputError(
            f"Cluster spec {text!r}: a number must be from 1 to {MOST}, or 'all'. "
            f"Received: {wrong}. Expected {write_grammar()}.{suggest(nearest)}"
        )
    return BadInputError(
        f"Cluster spec {text!r} is not known. Expected {write_grammar()}."
        f"{_suggest(text, body, device)}"
    )


def _find_wrong_number(body: str) -> str:
    """The number but for which a text would be a spec; empty if it is not that."""
    shapes = {outline(form) for form in list_forms()}
    if re.sub(_ANY_NUMBER, "#", body.replace("all", "#")) not in shapes:
        return ""
    numbers = re.findall(_ANY_NUMBER, body)
    return next((n for n in numbers if not re.fullmatch(f"0*{COUNT}", n)), "")


def _bring_near(number: re.Match[str]) -> str:
    if re.fullmatch(f"0*{COUNT}", number[0]):
        return number[0]
    is_less = number[0].startswith("-") or not number[0].strip("0")
    return "1" if is_less else str(MOST)


def _suggest(text: str, body: str, device: str) -> str:
    parts = [part for part in map(str.strip, text.split(",")) if part]
    if len(parts) > 1 and all(part[0].isalpha() for part in parts):
        known = all(part.partition(":")[0] in KINDS for part in parts)
        shown = parts if known else ("mirrored:2", "mwms:2")
        return f" Give each by itself: {' '.join(f'-c {part}' for part in shown)}."
    return suggest(_find_nearest(body, device))


def _find_nearest(body: str, device: str) -> list[str]:
    """The valid spec that is nearest to a text, with the text's own numbers.

    Nothing where its kind is near none.
    """
    words = body.strip().lower()
    kinds = find_near(re.split("[^a-z]", words)[0], KINDS)
    if not kinds:
        return []
    numbers = re.findall(NUMBER, words)
    shape = re.sub(r"[0-9]+|all", "#", words)
    # Who wrote no number at all meant no second one of replicas.
    meant = [form for form in KINDS[kinds[0]].forms if numbers or not _is_grid(form)]
    usual = {outline(form): form for form in meant}
    nearest = difflib.get_close_matches(shape, usual, n=1, cutoff=0.0)[0]
    # Several replicas of one worker need GPUs.
    known = ("gpu",) if _is_grid(usual[nearest]) else ("cpu", "gpu")
    for usually in ("2", "1"):
        nearest = nearest.replace("#", numbers.pop(0) if numbers else usually, 1)
    return ["@".join([nearest, *find_near(device, known)])]


def _is_grid(form: str) -> bool:
    """Whether a form says how many replicas each of so many workers has."""
    return {"W", "R"} <= {*form}
