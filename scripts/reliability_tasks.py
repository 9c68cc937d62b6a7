"""Faults of a task itself, as `scripts/reliability` injects them."""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measured import ROOT
from reliability_program import MEMORY_BYTES, Program

from distbench.checking.controls import Controls
from distbench.checking.failing import Failing
from distbench.checking.plan import Planned
from distbench.cluster import ClusterSpec
from distbench.escape import escape_controls
from distbench.evidence import Tier
from distbench.launch.rundir import RunDirectory
from distbench.observe import Launch, observe
from distbench.scenario import Scenario
from distbench.target import write_pickled_target

TIERS: tuple[Tier, ...] = ("bounded",)
SPEC = ClusterSpec.parse("mwms:3@cpu")
LIMIT_S = 60.0
"""Deadline of runs that a fault has to end long before."""
_STALL_S = 25.0
"""Deadline of runs that reach it: a busy machine takes half of it to get there."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCase:
    """A worker that goes wrong in the second step.

    Attributes:
        injury: Its name in `reliability_program`.
        how: How it is done.
        said: Pattern that what is said has to match.
        status: What the run has to end with.
        at_deadline: Whether nothing but the deadline can tell.
        memory_gib: The limit of each task.
        within_s: How long after the event the run may end; 0 where any time will do.
        enough: It counts nothing.
    """

    injury: str
    how: str
    said: str
    status: str = "error"
    at_deadline: bool = False
    memory_gib: float | None = None
    within_s: float = 0.0
    enough: int = 0

    @property
    def name(self) -> str:
        """What the table calls it."""
        return f"a task {self.injury}" if self.injury else "nothing happens"


_FIRST = r"Task worker-1 of 'mwms:3@cpu' "
_PLACE = r".* last at step 1, phase bounded, collective \d+, all_reduce of "
TASKS = (
    TaskCase(injury="", how="–", said="", status="pass"),
    TaskCase(
        injury="raises",
        how="`raise ValueError`",
        said=r"Step 1, .*worker-1 .*raised ValueError: injured, at .*program\.py:\d+",
        status="fail",
    ),
    TaskCase(
        injury="leaves by os._exit",
        how="`os._exit(3)`",
        said=_FIRST + "ended with exit code 3" + _PLACE,
    ),
    TaskCase(
        injury="is killed (SIGKILL)",
        how="`kill -KILL`, as Linux does where memory runs out; ended within 2 s",
        said=_FIRST + "was killed by SIGKILL" + _PLACE,
        within_s=2.0,
    ),
    TaskCase(
        injury="is asked to end (SIGTERM)",
        how="`kill -TERM`; TensorFlow takes it for a notice and goes on",
        said="",
        status="pass",
    ),
    TaskCase(
        injury="is called from elsewhere",
        how="`connect` to the ports of all tasks at 127.0.0.99, where servers of every "
        "interface answer; it has to be refused",
        said="",
        status="pass",
    ),
    TaskCase(
        injury="crashes (SIGSEGV)",
        how="reads address 0",
        said=_FIRST + "was killed by SIGSEGV" + _PLACE,
    ),
    TaskCase(
        injury="is stopped (SIGSTOP)",
        how="`kill -STOP`",
        said=_FIRST + "was stopped by a signal" + _PLACE,
    ),
    TaskCase(
        injury="waits for ever",
        how="waits for a lock that nobody gives back",
        said=r"passed its deadline.*from: worker-1 \(step 1.*worker-0, worker-2 only",
        at_deadline=True,
    ),
    TaskCase(
        injury="takes memory without end",
        how="16 MiB after 16 MiB; the seconds begin with what passes the limit of 512 "
        "MiB for each task; ended within 2 s",
        said=_FIRST + r"took \d+ MiB of memory, and 512 MiB a task may take",
        memory_gib=MEMORY_BYTES / 2**30,
        within_s=2.0,
    ),
    TaskCase(
        injury="asks for 2 PiB at once",
        how="`tf.ones([2**23, 2**10, 2**8])`; TensorFlow tries for ten seconds first",
        said=r"worker-1 .*ResourceExhaustedError.*OOM when allocating tensor",
        status="fail",
    ),
    TaskCase(
        injury="fills its disk",
        how="writes to a temporary file without end, on a disk of 512 MB",
        said=r"worker-1 .*OSError: .*No space left on device",
        status="fail",
    ),
    TaskCase(
        injury="prints 2 GB",
        how="`print`, then `raise ValueError`, on a disk of 512 MB",
        said=r"worker-1 .*raised ValueError: after the flood",
        status="fail",
    ),
    TaskCase(
        injury="prints a fake result and raises",
        how="a `finished` event and a verdict on stdout, control characters in both",
        said=r"worker-1 .*raised ValueError: \\x1b\[2J",
        status="fail",
    ),
    TaskCase(
        injury="closes its descriptors and waits",
        how="`os.closerange(3, 4096)`",
        said=r"worker-1 .*(could not be reached|closed its channel)",
    ),
    TaskCase(
        injury="closes its descriptors and raises",
        how="`os.closerange(0, 4096)`",
        said=_FIRST + "closed descriptors that are not its own",
    ),
    TaskCase(
        injury="forks and exits",
        how="`os.fork()`, and the child sleeps for ten minutes",
        said=_FIRST + "ended with exit code 5" + _PLACE,
    ),
    TaskCase(
        injury="forks, and both go on",
        how="`os.fork()`, and the child goes on as if it were the task",
        said="",
        status="pass",
    ),
    TaskCase(
        injury="leaves shared memory and is killed",
        how="`SharedMemory(create=True)`, then `kill -KILL`",
        said=_FIRST + "was killed by SIGKILL" + _PLACE,
    ),
    TaskCase(
        injury="leaves a daemon and exits",
        how="a child in a session of its own that sleeps for ten minutes",
        said=_FIRST + "ended with exit code 6" + _PLACE,
    ),
    TaskCase(
        injury="skips a sum",
        how="one `all_reduce` less than the others in a step",
        said=r"worker-0 waits in collective \d+, all_reduce of '.*worker-1 waits in",
        status="fail",
    ),
    TaskCase(
        injury="sums in another order",
        how="two `all_reduce` the other way round",
        said=r"worker-0 waits in collective \d+, .*\[6\].*worker-1 waits .*\[2\]",
        status="fail",
    ),
    TaskCase(
        injury="sums another shape",
        how="an `all_reduce` of twice the rows",
        said=r"worker-0 waits in collective \d+, .*\[6\].*worker-1 waits .*\[12\]",
        status="fail",
    ),
)


def run_task_case(case: TaskCase, folder: Path, stall_s: float = _STALL_S) -> Row:
    """Run a case once: what was said, and how long after the injury the run ended.

    Args:
        case: What is broken.
        folder: Where the injured task tells the time.
        stall_s: The deadline where the run ends by it. On a busy machine it may pass
            before the task is injured: then the case is run again with twice that.
    """
    told = folder / "told"
    told.unlink(missing_ok=True)
    timeout_s = stall_s if case.at_deadline else LIMIT_S
    begin = time.monotonic()
    with RunDirectory() as directory:
        program = Program(case.injury, told=str(told))
        target = write_pickled_target(program, directory.path)
        scenario = Scenario(
            target=target.describe(), cluster=str(SPEC), timeout_s=timeout_s
        )
        launch = Launch(directory=directory, memory_gib=case.memory_gib)
        seen = observe(target, scenario, SPEC, TIERS, launch, None)
        end = time.monotonic()
        status, said = "pass", ""
        if seen.failure is not None:
            # A training that was broken on purpose is not run once more.
            failing = Failing(TIERS, Controls(launch, TIERS), lambda _: ())
            planned = Planned(scenario=scenario, spec=SPEC, optional=False)
            (run,) = failing.judge(planned, seen, seen.failure)
            status = str(run.status)
            said = run.message or run.findings[0].explanation
    if case.at_deadline and not told.exists() and stall_s < LIMIT_S:
        return run_task_case(case, folder, 2 * stall_s)
    event = float(told.read_text()) if told.exists() else begin
    told.unlink(missing_ok=True)
    if case.at_deadline:
        event = begin + timeout_s
    in_time = end - event <= (case.within_s or math.inf)
    return {
        "case": case.name,
        "how": case.how,
        "kind": "deadline" if case.at_deadline else "event" if case.injury else "",
        "status": status,
        "said": escape_controls(said.replace(str(ROOT), ""))[:600],
        "right": status == case.status
        and in_time
        and bool(re.search(case.said, escape_controls(said), re.DOTALL)),
        "seconds": round(end - event, 2),
    }
