"""Whose fault a finding is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from verdict_samples import make_finding

import distbench
from distbench.checking.origin import (
    are_alike,
    find_origins,
    is_deliberate,
    is_installed,
    may_be_framework,
    plan_control,
)
from distbench.cluster import Task
from distbench.launch.failure import TaskFailedError
from distbench.scenario import Scenario
from distbench.target import TargetRef

STOCK = TargetRef(kind="import", module="stock", attribute="make")


def make_scenario(**changed: object) -> Scenario:
    return Scenario(target="a:b", **changed)  # type: ignore[arg-type]  # by the cases


def test_what_the_control_shows_too_is_the_frameworks() -> None:
    ours = make_finding(code="missing-reduction", phase="reduced_gradient")
    other = make_finding(code="scale-error", phase="reduced_gradient")
    elsewhere = make_finding(code="missing-reduction", phase="variable")
    found = find_origins((ours, other, elsewhere), (ours,))
    assert [f.origin for f in found] == ["framework", "subject", "subject"]


@pytest.mark.parametrize(
    ("shown", "origin"),
    [
        ({}, "framework"),
        ({"variable": "kernel"}, "framework"),
        ({"ratio": 0.37}, "subject"),
        ({"ratio": None}, "subject"),
        ({"error": 0.5}, "framework"),
        ({"step": 2}, "framework"),
        ({"warning": True}, "subject"),
    ],
)
def test_a_factor_is_the_frameworks_if_the_control_has_the_same(
    shown: dict[str, object], origin: str
) -> None:
    ours = make_finding(code="scale-error", ratio=2.0)
    theirs = replace(ours, **shown)
    assert [f.origin for f in find_origins((ours,), (theirs,))] == [origin]


@pytest.mark.parametrize(
    ("shown", "origin"),
    [
        ({}, "framework"),
        ({"variable": "kernel"}, "framework"),
        ({"ratio": 0.37}, "subject"),
        ({"error": 0.5}, "subject"),
        ({"step": 2}, "subject"),
    ],
)
def test_what_nothing_explains_is_the_frameworks_by_the_same_numbers(
    shown: dict[str, object], origin: str
) -> None:
    ours = make_finding(code="unexplained")
    theirs = replace(ours, **shown)
    assert [f.origin for f in find_origins((ours,), (theirs,))] == [origin]


def test_a_warning_of_the_control_is_no_reason_to_fail() -> None:
    wrong = make_finding(code="randomness-shared", phase="loss")
    warned = replace(wrong, warning=True)
    found = [find_origins((f,), (warned,))[0].origin for f in (wrong, warned)]
    assert found == ["subject", "framework"]


@pytest.mark.parametrize("minds_rows", [False, True])
def test_a_stock_rule_that_minds_repeated_rows_is_the_frameworks(
    minds_rows: bool,
) -> None:
    """Its own gradients have them as often on one device, so it shows no finding."""
    slot = make_finding(code="sparse-duplicates", phase="slot")
    handed = make_finding(code="sparse-duplicates", phase="reduced_gradient")
    found = find_origins((slot, handed), (), minds_rows=minds_rows)
    expected = "framework" if minds_rows else "subject"
    assert [f.origin for f in found] == [expected, "subject"]


@pytest.mark.parametrize(
    ("workload", "path", "phase", "expected"),
    [
        ("linear", "default", "loss", True),
        ("linear", "none", "reduced_gradient", False),
        ("", "default", "loss", False),
        ("", "default", "local_gradient", False),
        ("", "default", "reduced_gradient", True),
        ("", "default", "slot", True),
    ],
)
def test_what_a_program_computes_by_itself_needs_no_control(
    workload: str, path: str, phase: str, expected: bool
) -> None:
    scenario = make_scenario(workload=workload, path=path)
    finding = make_finding(phase=phase)
    assert may_be_framework(scenario, [finding]) is expected


@pytest.mark.parametrize(
    ("workload", "is_sparse", "expected"),
    [
        ("mlp", True, "mlp"),
        ("", True, "embedding"),
        ("", False, "linear"),
    ],
)
def test_a_programs_control_has_the_same_kind_of_gradients(
    workload: str, is_sparse: bool, expected: str
) -> None:
    scenario = make_scenario(workload=workload, seed=7)
    control = plan_control(scenario, STOCK, is_sparse=is_sparse)
    assert (control.workload, control.seed) == (expected, 7)
    assert control.target == STOCK.describe()


XLA = (
    "Detected at node {node}: Trying to access resource {variable} located in device "
    "/job:ps/replica:0/task:0/device:CPU:0 from device /job:worker/task:{task}/device:"
    "CPU:0 Cf. https://www.tensorflow.org/xla/known_issues [[{{{{node {node}}}}}]] "
    "Additional GRPC error information from remote target /job:worker/task:{task} "
    "while calling /tensorflow.eager.EagerService/Enqueue: :UNKNOWN:{rest}"
)
SHAPES = (
    "Invalid reduction dimension 0 for input with 0 dimensions. for "
    "'{{{{node {node}}}}} = {op}[T=DT_FLOAT, keep_dims=false]({inputs})' "
    "with input shapes: [], []"
)
ASSERTED = "assertion failed: [{words}] [[{{{{node {node}}}}}]]"


def fail(message: str, exception: str = "InvalidArgumentError") -> TaskFailedError:
    return TaskFailedError(
        "worker-0 failed",
        task=Task(role="worker", index=0),
        kind="subject",
        exception=exception,
        message=message,
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (
            fail(XLA.format(node="Call_1", variable="a/kernel/3", task=0, rest="x...")),
            fail(XLA.format(node="Call", variable="dense/bias/11", task=1, rest="Er")),
            True,
        ),
        (
            fail(ASSERTED.format(words="no", node="Assert/Assert")),
            fail(ASSERTED.format(words="not so", node="Assert/Assert")),
            False,
        ),
        (
            fail(SHAPES.format(node="Sum_3", op="Sum", inputs="mean, Sum_3/indices")),
            fail(SHAPES.format(node="Sum", op="Sum", inputs="loss/mse/Mul, Sum/i")),
            True,
        ),
        (
            fail(SHAPES.format(node="Sum_3", op="Sum", inputs="mean, Sum_3/indices")),
            fail(SHAPES.format(node="Sum_3", op="Max", inputs="mean, Sum_3/indices")),
            False,
        ),
        (fail("no"), fail("no", "ValueError"), False),
        (fail("feed 'a/b/cond' [[{{node a/c..."), fail("feed 'a/long..."), True),
        (fail("feed 'a/b/cond' [[{{node a/c..."), fail("run 'a/long..."), False),
        (fail("feed 'a/b' twice"), fail("feed 'a/c"), False),
        (fail("Incompatible shapes: [3] vs. [5]"), fail("No such op"), False),
    ],
    ids=[
        "names",
        "words",
        "inputs",
        "ops",
        "types",
        "cut",
        "cut-others",
        "whole",
        "others",
    ],
)
def test_two_failures_are_alike_if_names_alone_tell_them_apart(
    ours: TaskFailedError, theirs: TaskFailedError, expected: bool
) -> None:
    assert are_alike(theirs, ours) is expected


THREAD = """Traceback (most recent call last, the framework's frames left out):
  File "/usr/lib/python3.11/{file}", line 145, in __exit__
    except StopIteration:
{error}
"""
OP = "tensorflow.python.framework.errors_impl.InvalidArgumentError: not there"


@pytest.mark.parametrize(
    ("file", "error", "expected"),
    [
        ("contextlib.py", OP, True),
        ("contextlib.py", "KeyError: 'x'", False),
        ("site-packages/mine/step.py", OP, False),
    ],
)
def test_what_an_op_refuses_in_another_thread_is_deliberate(
    file: str, error: str, expected: bool
) -> None:
    assert is_deliberate(THREAD.format(file=file, error=error)) is expected


RUN = """Traceback (most recent call last, the framework's frames left out):
  File "/opt/lib/python3.11/site-packages/tensorflow/python/eager/execute.py", line 53, in quick_execute
    tensors = pywrap_tfe.TFE_Py_Execute(ctx._handle, device_name, op_name)
InvalidArgumentError: {words}
"""  # noqa: E501  # a line of a traceback


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("Trying to access resource kernel", True),
        ("You must feed a value for placeholder tensor 'while/cond/x'", False),
    ],
    ids=["refused", "made-wrong"],
)
def test_a_graph_that_was_made_wrong_refuses_nothing(
    words: str, expected: bool
) -> None:
    assert is_deliberate(RUN.format(words=words)) is expected


RAISED = """Traceback (most recent call last, the framework's frames left out):
  File "{file}", line 12, in call
    raise ValueError("no")
ValueError: no
"""


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("/opt/lib/python3.11/site-packages/keras/src/trainer.py", True),
        ("/usr/lib/python3/dist-packages/tensorflow/python/ops/math_ops.py", True),
        ("/home/me/keras/trainer.py", False),
        ("/opt/lib/python3.11/site-packages/mine/keras/trainer.py", False),
    ],
)
def test_a_framework_is_where_it_is_installed(file: str, expected: bool) -> None:
    assert is_deliberate(RAISED.format(file=file)) is expected


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("/venv/lib/python3.11/site-packages/optree/ops.py:798: return f(x)", True),
        ("optimizer.py:12: raise ValueError('/site-packages/')", False),
    ],
    ids=["of-a-package", "own"],
)
def test_a_line_of_a_package_is_not_called_the_users(
    place: str, expected: bool
) -> None:
    assert is_installed(place) == expected


HANDED_ON = """Traceback (most recent call last, the framework's frames left out):
  File "{file}", line 140, in launch
    del launcher.given
TypeError: Value passed to parameter 'input' has DataType bfloat16
"""


@pytest.mark.parametrize(
    ("place", "expected"),
    [("worker/process/collectives.py", True), ("faults/sparse.py", False)],
    ids=["bench", "its-programs"],
)
def test_what_the_bench_hands_on_is_refused_below(place: str, expected: bool) -> None:
    """TensorFlow leaves its own frames out of what its calls raise."""
    file = Path(distbench.__file__).parent / place
    assert is_deliberate(HANDED_ON.format(file=file)) is expected


MADE = """Traceback (most recent call last, the framework's frames left out):
  File "/opt/lib/python3.11/site-packages/tensorflow/python/framework/ops.py", line 1046, in {name}
    raise ValueError(e.message)
ValueError: Dimensions must be equal, but are 3 and 5
"""  # noqa: E501  # a line of a traceback


@pytest.mark.parametrize(
    ("name", "expected"), [("_create_c_op", False), ("_check_graph", True)]
)
def test_shapes_that_do_not_fit_are_refused_to_whoever_made_them(
    name: str, expected: bool
) -> None:
    """TensorFlow finds the mistake where it makes the op that a user asks for."""
    assert is_deliberate(MADE.format(name=name)) is expected
