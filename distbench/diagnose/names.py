"""What replicas, variables and steps are called in a sentence."""

from __future__ import annotations

from collections.abc import Collection, Sequence

_MOST_SHOWN = 8


def name_replicas(replicas: Collection[int]) -> str:
    """`replica 1`, `replicas 0, 2` and, of more than three in a row, `replicas 0-7`."""
    found = sorted(replicas)
    numbers = ", ".join(map(str, found))
    if len(found) > 3 and found == list(range(found[0], found[-1] + 1)):
        numbers = f"{found[0]}-{found[-1]}"
    return f"replica{'s' if len(found) != 1 else ''} {numbers}"


def name_variables(paths: Sequence[str]) -> str:
    """`'w'`, `'w' and 'b'` and, of more, `'w' and 3 more`."""
    if len(paths) == 2:
        return f"'{paths[0]}' and '{paths[1]}'"
    more = f" and {len(paths) - 1} more" if len(paths) > 2 else ""
    return f"'{paths[0]}'{more}"


def tell_more(names: Collection[object]) -> str:
    """How many there are besides the first, ` (and 2 more)`; nothing of one alone."""
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""


def name_lag(lag: int) -> str:
    """`one step`, `2 steps`: by how much something is late."""
    return "one step" if lag == 1 else f"{lag} steps"


def name_steps(steps: Sequence[int]) -> str:
    """`step 3`, `steps 3, 5 and 7`, `steps 0, 1, 2 and 9 more`."""
    return name_numbers("step", steps)


def name_numbers(what: str, numbers: Sequence[int]) -> str:
    """What has these numbers, `row` say: `row 3`, `rows 3, 5 and 7`."""
    shown = [str(number) for number in numbers]
    if len(shown) == 1:
        return f"{what} {shown[0]}"
    if len(shown) > _MOST_SHOWN:
        more = len(shown) - _MOST_SHOWN + 1
        shown = [*shown[: _MOST_SHOWN - 1], f"{more} more"]
    return f"{what}s {', '.join(shown[:-1])} and {shown[-1]}"
