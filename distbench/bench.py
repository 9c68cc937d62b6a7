"""What a test is given: the Python interface, with the options of its run."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distbench.fault import Fault
    from distbench.verdict import Verdict
    from distbench.verdict.handed import HandedVerdict


class Bench:
    """What the fixture `distbench` gives: the Python interface with this run's options.

    Args:
        settings: Defaults from the command line, for every check.
        verdicts: Where the verdicts of the test are kept.
    """

    def __init__(self, settings: Mapping[str, Any], verdicts: list[Verdict]) -> None:
        self._settings = dict(settings)
        self._verdicts = verdicts
        self._handed: list[HandedVerdict] = []

    def check(
        self, subject: object, cluster: str | Sequence[str] = "mwms:2", **options: Any
    ) -> Verdict:
        """Check a subject on a cluster or several; see `distbench.check`.

        Returns:
            The verdict: `assert verdict` or `verdict.raise_for_status()` fails the
            test with the diagnosis.
        """
        from distbench.api import check
        from distbench.verdict.handed import hand_over

        verdict = check(subject, cluster, **{**self._settings, **options})
        self._verdicts.append(verdict)
        handed = hand_over(verdict)
        self._handed.append(handed)
        return handed

    def warn_of_unread(self) -> None:
        """Warn of verdicts that are no pass, and at which the test did not look."""
        for handed in self._handed:
            if not handed.asked and not handed:
                warnings.warn(
                    f"{handed!r} was not looked at: the test passes whatever a check "
                    "comes to. Write 'assert distbench.check(...)'.",
                    stacklevel=1,
                )

    def run(
        self,
        function: Callable[..., Any],
        cluster: str = "mwms:2",
        *,
        args: tuple[Any, ...] = (),
        timeout_s: float | None = None,
        faults: Fault | str | Iterable[Fault | str] = (),
        **options: Any,
    ) -> Mapping[tuple[str, int], Any]:
        """Run a function on every task of a cluster; see `distbench.run`."""
        from distbench.call import run
        from distbench.limits import UNASKED_S

        if timeout_s is None:
            timeout_s = self._settings.get("timeout_s", UNASKED_S)
        return run(
            function,
            cluster,
            args=args,
            timeout_s=timeout_s,
            faults=faults,
            **{"engine": self._settings.get("engine", "local"), **options},
        )
