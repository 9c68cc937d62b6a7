"""Whose fault a finding is, measured by a control: a stock optimizer that shows it too.

The control of an optimizer is its family's stock one in the very same scenario. That of
a train program is the stock one under a workload of the bench with the same kind of
gradients: what goes wrong there as well does so without a line of the program. That of
a Keras model is a stock model, trained by the same `fit`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from distbench.addresses import strip_addresses
from distbench.compare.arrays.ratio import are_same_factors
from distbench.evidence import Evidence, Tier
from distbench.launch.failure import TaskFailedError
from distbench.scenario import Scenario
from distbench.scenario.choices import PIPELINE, PROGRAM, WORKLOADS
from distbench.target import TargetRef
from distbench.trace import COMPUTED, UPDATED, SparseRows
from distbench.verdict import Finding

_FRAME = re.compile(
    r'^  File "(?P<file>[^"]+)", line \d+, in (?P<name>.*)\n    (?P<line>.*)', re.M
)
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")
_FRAMEWORK = re.compile(_INSTALLED.pattern + r"(tensorflow|tf_keras|keras)[/\\]")
"""Where it is installed: the user's own folders may have the same names."""
_RUNTIME = re.compile(r"[/\\]tensorflow[/\\]python[/\\]eager[/\\]execute\.py$")
"""Where an op's own refusal comes out of C++, on a line that is no `raise`."""
_OP_ERROR = re.compile(r"^tensorflow\.python\.framework\.errors_impl\.\w+: ", re.M)
_STANDARD = re.compile(r"[/\\]python3\.\d+[/\\](?!site-packages|dist-packages)")
"""What an op refuses in a thread of a coordinator comes with TensorFlow's own frames
filtered out, so that the innermost one is of a context manager around them."""
_NODE = re.compile(r"\s*;?\s*NodeDef: .*", re.DOTALL)
"""Each task of a collective runs an op of its own: one sends, the others receive."""
_OP = re.compile(r"\{\{node [^}]*\}\} = (\w+)\[[^]]*\]\([^)]*\)")
"""What an op is called, and those that it takes: models name and compute others."""
_OTHER = re.compile(r"\s*\[\[.*?\]\]", re.DOTALL)
"""Further ops that a failure passed through; which are told is chance."""
_NUMBER = re.compile(r"(?<=\w)_\d+\b")
"""What tells the second op of a name from the first."""
_REMOTE = re.compile(r"\s*Additional GRPC error information .*", re.DOTALL)
"""What the worker said once more, often cut off."""
_PATH = re.compile(r"/?\b[\w.:]+(/[\w.:]+)+")
"""Variables, ops and devices: those of a stock model have other names."""
_CUT = "..."
"""What a message ends with that was too long."""
_UNFED = "You must feed a value for placeholder"
"""What the runtime says of a graph that was made wrong: nobody refuses anything."""
_OWN = str(Path(__file__).parents[1] / "worker")
"""Where the bench hands a call on, and TensorFlow left out its own frames below."""
_OP_MAKER = "_create_c_op"
"""Where TensorFlow says that the shapes of an op do not fit, whoever put it there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """What a stock optimizer showed.

    Attributes:
        failure: The task that failed, if one did.
        findings: By tier, where the run got to its end.
        torn: Roles of the state that its update reads by one op, to write by another,
            known of steps in flight: there these may lose, or double, what others did.
        minds_rows: Whether its rule gives something else if the repeated rows of a
            sparse gradient are added up before. Its own gradients have them as often
            on one device, so that no number tells.
    """

    failure: TaskFailedError | None = None
    findings: Mapping[Tier, tuple[Finding, ...]] = field(default_factory=dict)
    torn: frozenset[str] = frozenset()
    minds_rows: bool = False


def may_be_framework(scenario: Scenario, findings: Sequence[Finding]) -> bool:
    """Whether a control could show any of the findings."""
    if scenario.workload in (PROGRAM, PIPELINE):
        return any(finding.phase not in COMPUTED for finding in findings)
    # On the path `none` the bench itself leaves the reduction out, in the user's
    # place: any optimizer shows it, and it is not the framework's fault.
    return scenario.path != "none"


def plan_control(
    scenario: Scenario,
    control: TargetRef,
    *,
    is_sparse: bool = False,
    overflows: bool = False,
) -> Scenario:
    """The scenario of the control.

    Args:
        scenario: That of the subject.
        control: The stock optimizer.
        is_sparse: Whether the subject has sparse gradients.
        overflows: Whether what is wrong has to do with an overflow on one replica.
    """
    # What the bench injects is nobody's mistake: the control goes without.
    is_injected = bool(scenario.faults)
    scenario = replace(scenario, target=control.describe(), faults=())
    if scenario.workload in WORKLOADS and overflows and is_injected:
        return replace(scenario, workload="overflow")  # there it comes of the data
    if scenario.workload not in (PROGRAM, PIPELINE):
        return scenario  # the control of a model is a model
    dense = "overflow" if overflows else "linear"
    if scenario.in_flight > 1:
        dense = "counting"
    sparse = is_sparse and not overflows
    return replace(scenario, workload="embedding" if sparse else dense)


def has_sparse_gradients(evidence: Evidence) -> bool:
    """Whether any gradient of a run was sparse."""
    return any(isinstance(v, SparseRows) for v in evidence.observed.values.values())


def find_origins(
    findings: Sequence[Finding],
    of_control: Sequence[Finding],
    *,
    minds_rows: bool = False,
) -> tuple[Finding, ...]:
    """Lay at the framework's door what the control shows too.

    Args:
        findings: Of the subject.
        of_control: Of the control.
        minds_rows: See `Control`.
    """
    rows = {("sparse-duplicates", phase) for phase in UPDATED if minds_rows}
    return tuple(
        replace(f, origin="framework")
        if _name_place(f) in rows or any(_shows(shown, f) for shown in of_control)
        else f
        for f in findings
    )


def _shows(shown: Finding, finding: Finding) -> bool:
    """Whether what a control shows is a subject's finding as well.

    What it shows in a run that passes is no reason for the subject to fail. A code that
    names no cause, or any factor, stands for many: there the numbers are to be the same
    as well. Those of a control are, if it has the subject's model and data.
    """
    if _name_place(shown) != _name_place(finding) or shown.warning > finding.warning:
        return False
    if finding.code == "unexplained":
        is_same_error = are_same_factors(shown.error, finding.error)
        is_same_step = shown.step == finding.step
        return is_same_step and is_same_error and _have_same_ratio(shown, finding)
    return finding.code != "scale-error" or _have_same_ratio(shown, finding)


def _have_same_ratio(shown: Finding, finding: Finding) -> bool:
    if shown.ratio is None or finding.ratio is None:
        return shown.ratio == finding.ratio
    return are_same_factors(shown.ratio, finding.ratio)


def _name_place(finding: Finding) -> tuple[str, str]:
    """Code and phase; what overflows shows in slots first, if a rule has any."""
    is_state = finding.code == "nonfinite" and finding.phase == "slot"
    return finding.code, "variable" if is_state else finding.phase


def is_deliberate(traceback: str) -> bool:
    """Whether the framework itself raised on purpose: in its own code or in an op.

    Args:
        traceback: As Python prints it; the innermost frame is the last.
    """
    frames = list(_FRAME.finditer(traceback))
    if not frames:
        return False
    last = frames[-1]
    if last["file"].startswith(_OWN):
        return True
    if _RUNTIME.search(last["file"]) is not None:
        return _UNFED not in traceback
    if _STANDARD.search(last["file"]) is not None:
        return _OP_ERROR.search(traceback) is not None
    is_framework = _FRAMEWORK.search(last["file"]) is not None
    is_raised = last["line"].startswith("raise ") and last["name"] != _OP_MAKER
    return is_framework and is_raised


def is_installed(place: str) -> bool:
    """Whether a line is of a package: the subject's, or one that the framework uses.

    Args:
        place: Begins with its file.
    """
    return _INSTALLED.search(place.partition(":")[0]) is not None


def are_alike(left: TaskFailedError | None, right: TaskFailedError) -> bool:
    """Whether two tasks failed in the same way."""
    return (
        left is not None
        and (left.kind, left.exception) == (right.kind, right.exception)
        and _say_the_same(left.message, right.message)
    )


def _say_the_same(left: str, right: str) -> bool:
    """Whether two messages are equal but for names, as far as both were kept."""
    cores = sorted((_get_core(left), _get_core(right)), key=len)
    if left.endswith(_CUT) and right.endswith(_CUT):
        # Names of other lengths were cut off at other places.
        return cores[1].startswith(cores[0].removesuffix(_CUT))
    return cores[0] == cores[1]


def _get_core(message: str) -> str:
    """What an exception says of every subject, in every task and process."""
    message = strip_addresses(message)
    for pattern in (_REMOTE, _NODE, _OTHER, _NUMBER):
        message = pattern.sub("", message)
    message = _OP.sub(r"\1", message)
    return _PATH.sub("/", message)
