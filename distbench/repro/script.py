"""Puts the script together."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from string import Template
from textwrap import indent
from typing import Any

from distbench.errors import BadInputError
from distbench.gpus import VISIBLE
from distbench.limits import find_longest
from distbench.repro.case import Case
from distbench.repro.clusters import write_cluster, write_partitioner
from distbench.repro.pipelines import write_count, write_pipeline
from distbench.repro.subjects import write_import, write_slices, write_subject
from distbench.scenario.choices import PIPELINE
from distbench.verdict import Outcome

MOST_LINES = 59
"""A longer one is no bug report."""

# Names come from user code and from files of others: they stand in comments and
# literals as `ascii` spells them, in which no line ends and no quote closes.
# AutoGraph's files go with the script, which runs no exit handler (TensorFlow's hang).
_SCRIPT = Template("""\
# $headline.
# Exits with 1 if $told, else with 0. Found with TensorFlow $tensorflow; needs $needs.
import $modules
tempfile.tempdir = (scratch := tempfile.TemporaryDirectory()).name  # AutoGraph's
sys.excepthook = lambda *error: (sys.__excepthook__(*error), os._exit(scratch.cleanup() or 3))
os.environ.update($environment); signal.alarm($deadline)  # ends what waits for ever
import numpy as np, tensorflow as tf
tf.config.optimizer.set_experimental_options(dict.fromkeys(("arithmetic_optimization", "constant_folding", "remapping", "dependency_optimization"), False))
${settings}CUTS, EXAMPLES, STEPS, SEED, DTYPE = $cuts, $examples, $steps, $seed, $dtype
$subject$train$cluster$told_by""")  # noqa: E501  # one line of the script

# Workers print at the same time: what one has to say is written at once.
_COMPARE = Template("""\
${trained}lines = [$place + f" on one device: {one} allowed error: $allowed"]
lines += [f"  replica {r}: {v}, ratio {v / one}" for r, v in enumerate(many, first)]
print("\\n".join([*lines, ""]), end="", flush=True)
os._exit(scratch.cleanup() or not np.allclose(many, one, rtol=0, atol=$bound, equal_nan=True))
""")  # noqa: E501  # by a word
# Of steps in flight: which element a race spoils is chance.
_COMPARE_ALL = Template("""\
${trained}apart = np.abs(many[0] - one) > $bound
print($place, "wrong in", apart.sum(), "of", apart.size, "elements, allowed error: $allowed")
print("  one device", one[apart][:8], "cluster", many[0][apart][:8], flush=True)
os._exit(scratch.cleanup() or int(apart.any()))
""")  # noqa: E501  # by a word
_RAISES = Template("""\
try:
${trained}\
except Exception as error:
    print("the cluster raises", type(error).__name__, error, flush=True)
    os._exit(scratch.cleanup() or 1)
print("nothing raises", flush=True)
os._exit(scratch.cleanup() or 0)
""")
_MODULES = (  # but for those that every script needs
    "base64",
    "collections",
    "copy",
    "importlib",
    "importlib.util",
    "itertools",
    "json",
    "random",
    "socket",
    "subprocess",
    "zlib",
)
_ALWAYS = ("os", "signal", "sys", "tempfile")
_LEGACY = "TF_USE_LEGACY_KERAS"
_ONEDNN = "TF_ENABLE_ONEDNN_OPTS"


def write_script(case: Case, environment: Mapping[str, Any]) -> str:
    """The script that shows a finding.

    Args:
        case: The finding.
        environment: That of the verdict.

    Raises:
        BadInputError: A script cannot show it, or not in so few lines.
    """
    if not isinstance(environment, Mapping):  # what a file says may be anything
        environment = {}
    outcome = case.outcome
    if case.scenario.workload == PIPELINE:
        train, setup, trained = write_pipeline(case)
    else:
        train = write_subject(case)
        setup = write_cluster(case.spec, is_cut=bool(case.scenario.partitioner))
        more = ", coordinator" if case.spec.traits.scheduled else ""
        trained = f"many = train(strategy, CUTS{more})\n"
    if case.counts_examples:
        told_by = trained + write_count(case)
    elif outcome is None:
        told_by = _RAISES.substitute(trained=indent(trained, "    "))
    else:
        is_flight = case.scenario.in_flight > 1
        place = outcome.variable if is_flight else name_place(outcome)
        told_by = (_COMPARE_ALL if is_flight else _COMPARE).substitute(
            trained=trained,
            bound=repr(case.bound),
            allowed=f"{case.bound:.3g}",
            place=ascii(place),
        )
    shards = case.scenario.split or case.scenario.shards
    parts = {
        "train": train,
        "cluster": setup,
        "told_by": told_by,
        "subject": write_import(case.target),
    }
    body = "".join(parts.values())
    used = [name for name in _MODULES if re.search(rf"(?<![\w.]){name}\.\w", body)]
    frame = {
        "headline": _write_headline(case),
        "told": "the cluster raises"
        if case.raises
        else "cluster and one device differ",
        "needs": _name_source(case),
        "tensorflow": ascii(environment.get("tensorflow")),
        "modules": ", ".join([*used, *_ALWAYS]),
        "environment": _choose_environment(case, environment),
        "cuts": write_slices(shards),
        "examples": sum(shards),
        "steps": case.steps,
        "dtype": f"tf.{case.scenario.dtype}.as_numpy_dtype",
        "deadline": math.ceil(find_longest(case.scenario.timeout_s)),
        "seed": case.scenario.seed,
        "settings": _write_settings(case),
    }
    lines = _SCRIPT.substitute(frame, **parts).count("\n")
    if lines > MOST_LINES:
        raise BadInputError(
            f"The script for run '{case.run.scenario}' would have {lines} lines. "
            f"Expected at most {MOST_LINES}. Check the subject on --path default and a "
            "smaller workload, or on mirrored:2."
        )
    # Where there is room, its parts stand apart.
    apart = list(parts)[: MOST_LINES - lines]
    parts.update({name: f"\n{parts[name]}" for name in apart})
    return _SCRIPT.substitute(frame, **parts)


def name_place(outcome: Outcome) -> str:
    """Where the number stands."""
    where = outcome.variable or "the loss"
    if outcome.element:
        where += f"[{', '.join(map(str, outcome.element))}]"
    return f"{where} after step {outcome.step}"


def _write_headline(case: Case) -> str:
    finding, outcome = case.finding, case.outcome
    place = ascii(name_place(outcome)) if outcome else f"step {finding.step}"
    seen = ""
    if outcome and not math.isnan(outcome.observed):
        seen = f" ({outcome.expected:.6g} on one device, {outcome.observed:.6g} here)"
    return f"{finding.code} on {case.spec}: {place}{seen}"


def _name_source(case: Case) -> str:
    target = case.target
    return f"{target.path!a} (attach it)" if target.path else ascii(target.module)


def _choose_environment(case: Case, environment: Mapping[str, Any]) -> str:
    """Which Keras and which kernels there are is decided by TensorFlow's import."""
    # With several threads within an op, sums come in another order.
    chosen = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_NUM_INTRAOP_THREADS": "1"}
    if case.spec.traits.scheduled:
        # A server's pending request holds a thread while it waits for another's.
        count = case.spec.workers + case.spec.parameter_servers + 1
        chosen["TF_NUM_INTEROP_THREADS"] = str(count)
    if case.spec.traits.tf_config:
        # Else gRPC asks a proxy for it, where one is set.
        chosen["no_grpc_proxy"] = "127.0.0.1"
    if case.spec.device != "gpu":
        chosen[VISIBLE] = "-1"
    variables = environment.get("variables")
    given = variables if isinstance(variables, Mapping) else {}
    for name in (_ONEDNN, _LEGACY):
        if isinstance(given.get(name), str):
            chosen[name] = given[name]
    if case.scenario.keras is not None:
        chosen[_LEGACY] = "1" if case.scenario.keras == "legacy" else "0"
    return ascii(chosen)


def _write_settings(case: Case) -> str:
    lines = write_partitioner(case.scenario.partitioner).splitlines()
    if case.spec.device == "gpu":
        lines.append("tf.config.experimental.enable_tensor_float_32_execution(False)")
    if case.scenario.op_determinism:
        lines.append("tf.config.experimental.enable_op_determinism()")
    if case.scenario.jit is not None:
        mode = '"autoclustering"' if case.scenario.jit else "False"
        lines.append(f"tf.config.optimizer.set_jit({mode})")
    return "".join(f"{line}\n" for line in lines)
