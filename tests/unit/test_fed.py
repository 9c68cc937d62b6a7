"""What was fed to one device in several ways, put together."""

from __future__ import annotations

from distbench.fed import Fed
from distbench.trace import Trace


def make_trace(name: str) -> Trace:
    return Trace(name=name, replicas=1, shards=(2,), variables=(), values={})


FIRST, SECOND, THIRD = map(make_trace, ("first", "second", "third"))


def test_what_is_fed_in_several_ways_is_joined_field_by_field() -> None:
    followed = Fed(replays={"reduced_gradient": FIRST}, decayed=(FIRST,), turns=SECOND)
    summed = Fed(decayed=(SECOND, THIRD), due=THIRD)
    joined = followed.join(summed, Fed())
    assert joined == Fed(
        replays={"reduced_gradient": FIRST},
        decayed=(FIRST, SECOND, THIRD),
        turns=SECOND,
        due=THIRD,
    )


def test_traces_are_gathered_again_by_the_names_of_their_fields() -> None:
    fed = Fed(replays={"reduced_gradient": FIRST}, decayed=(SECOND,), due=THIRD)
    assert fed.traces["decayed"] == (SECOND,)
    assert fed.traces["due"] == (THIRD,)
    assert fed.traces["mean"] == ()
    assert Fed.gather(fed.replays, fed.traces.__getitem__) == fed
