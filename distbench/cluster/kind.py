"""What is true of all clusters of a kind; nobody asks for a kind by its name."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from distbench.cluster.numbers import NUMBER, USUAL, parse_number, spell_number

_LETTER = "[WRP]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterKind:
    """A kind of cluster, by how it is written and by what is true of it.

    Attributes:
        name: What its specs begin with, in small letters.
        sizes: What may follow behind a colon, the shortest first: `W` stands for the
            number of workers, `R` for that of each one's replicas, `P` for that of
            parameter servers, as in `WxR`. None where there is nothing to count.
        strategy: How a script makes its strategy; `$devices` are those of a worker,
            `$cut` follows the resolver of a chief. Empty where no script shows it.
        single: It is the one device that clusters are held against.
        scheduled: A chief schedules each step, on one worker that takes it by itself.
        collective: Its workers are processes whose replicas meet in collectives.
        divides_cpu: A worker without GPUs has several devices of its CPU; else one.
        variables_on_cpu: Its variables are on CPUs, wherever replicas compute.
        tf_config: Its tasks know each other by TF_CONFIG, and listen on a port each.
        takes_gpus: It has GPUs where there are enough and nobody says; else CPUs.
        smaller: Specs that may show what one of these does, the smallest first.
        shown: Those that `distbench list` tells of.
    """

    name: str
    sizes: tuple[str, ...] = ()
    strategy: str = ""
    single: bool = False
    scheduled: bool = False
    collective: bool = False
    divides_cpu: bool = False
    variables_on_cpu: bool = False
    tf_config: bool = False
    takes_gpus: bool = True
    smaller: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not re.fullmatch("[a-z]+", self.name):
            raise ValueError(f"A kind is named in small letters. Received: {self.name}")

    @property
    def forms(self) -> tuple[str, ...]:
        """How its specs are written, with letters for the numbers."""
        return tuple(f"{self.name}:{size}" for size in self.sizes) or (self.name,)

    @property
    def has_servers(self) -> bool:
        """Whether some of its tasks are parameter servers."""
        return any("P" in size for size in self.sizes)

    @property
    def joint(self) -> bool:
        """Whether all replicas take each step together, and not one by itself."""
        return not (self.single or self.scheduled)

    @property
    def strategy_name(self) -> str:
        """The name of its strategy's class."""
        return self.strategy.partition("(")[0].rpartition(".")[2]

    def read(self, body: str) -> Mapping[str, int] | None:
        """The numbers of a spec without its device, by letter; None if it is none."""
        for form in self.forms:
            if match := _compile(form).fullmatch(body):
                found = match.groupdict().items()
                return USUAL | {letter: parse_number(text) for letter, text in found}
        return None

    def spell(self, numbers: Mapping[str, int]) -> str:
        """The shortest spec that has all of these numbers; see `read`."""
        given = {letter for letter in numbers if numbers[letter] != USUAL[letter]}
        form = next((f for f in self.forms if given <= {*f}), self.forms[-1])
        return re.sub(_LETTER, lambda letter: spell_number(numbers[letter[0]]), form)


@functools.cache
def _compile(form: str) -> re.Pattern[str]:
    written = re.escape(form)
    return re.compile(re.sub(_LETTER, lambda x: f"(?P<{x[0]}>{NUMBER})", written))


def outline(form: str) -> str:
    """A form with `#` for each number."""
    return re.sub(_LETTER, "#", form)
