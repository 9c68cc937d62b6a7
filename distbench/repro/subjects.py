"""The kinds of subjects as a script trains them: its function `train`."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from string import Template

from distbench.errors import BadInputError
from distbench.repro.case import Case
from distbench.repro.checkpoints import write_restore
from distbench.repro.paths import WRITTEN_PATHS
from distbench.repro.workloads import write_workload
from distbench.scenario.choices import MODEL, PROGRAM
from distbench.split import shard_slices
from distbench.target import TargetRef
from distbench.verdict import Outcome

_ODD_FILE = Template("""\
sys.path.insert(0, $folder)
spec = importlib.util.spec_from_file_location("subject", $path)
module = sys.modules["subject"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
subject = module.$attribute
""")
_MODULE = Template("""\
sys.path.insert(0, $folder)
subject = importlib.import_module($name).$attribute
""")

_OPTIMIZER = Template("""\
def train(strategy, cuts$coordinator):
    with strategy.scope():
        variables = [tf.Variable(v.astype(DTYPE), name=n$options) for n, v in START.items()]
${flat}\
        optimizer = subject()
${configure}\
        if hasattr(optimizer, "stateless_apply"): optimizer.build($trained)  # Keras 3
    def replica_step(batch):
        with tf.GradientTape() as tape:
            loss = ${weight}tf.reduce_sum(compute_losses(*variables, *batch)) / EXAMPLES
${penalty}${scaled}\
        optimizer.apply_gradients($apply)
${result}""")  # noqa: E501  # the script's lines are shorter
_FLAT = """\
        shards = [s for v in variables for s in getattr(v, "variables", [v])]
"""
_SCALED = """\
            scaled = loss * strategy.num_replicas_in_sync
"""
_SEEDS = """\
    random.seed(SEED), np.random.seed(SEED), tf.random.set_seed(SEED)
"""
_PROGRAM = Template("""\
def train(strategy, $cuts$coordinator):
${seeds}\
    program = subject() if isinstance(subject, type) else copy.deepcopy(subject)
    with strategy.scope():
        program.build(strategy)
    replica_step = program.replica_step
""")
_LOOP = Template("""\
    step = tf.function(lambda batch: $result)
${early}\
    for $number in $numbers:
${go_on}${before}\
${whole}        parts = [tf.nest.map_structure(lambda a: tf.constant(a[c]), $batch) for c in $cuts]
        $run
$read""")  # noqa: E501  # the script's lines are shorter
# What was read: the replicas' shards, or all of a batch.
_READ_LOOP = Template("""\
    step = tf.function(lambda batch: $result)
    for number, (batch, _) in enumerate(batches):
${before}\
        loss = step(batch)
$read""")
# What a round has in flight: no order is promised.
_ROUNDS = Template("""\
    step = tf.function(lambda batch: strategy.run(replica_step, args=(batch,)))
    for first in range(0, STEPS * $in_flight, $in_flight):
        for number in range(first, first + $in_flight):
            batch = tf.nest.map_structure(tf.constant, $batch)
            coordinator.schedule(step, (batch,)) if coordinator else step(batch)
        coordinator and coordinator.join()
$read""")
_WHOLE = """\
        whole = tf.nest.map_structure(np.asarray, program.data(number))
"""
_BEFORE = """\
        with strategy.scope():
            getattr(program, "before_step", lambda number: None)(number)
"""
_TOGETHER = """\
loss = step(strategy.experimental_distribute_values_from_function(
            lambda context: parts[context.replica_id_in_sync_group]))"""
_SCHEDULED = """\
loss = (coordinator.schedule(step, (parts[0],)).fetch() if coordinator
                else step(parts[0]))"""
_MODEL = Template("""\
def train(strategy, cuts$coordinator):
${seeds}\
    with strategy.scope():
        model = subject()
    model.jit_compile = False
    data = getattr(subject, "data", None) or sys.modules[subject.__module__].data
    batches = [data(number) for number in range($batches)]
    batches = [tuple(b) if isinstance(b, list) else b for b in batches]
    whole = tf.nest.map_structure(
        lambda *parts: np.concatenate([part[:EXAMPLES] for part in parts]), *batches)
    dataset = tf.data.Dataset.from_tensor_slices(whole).batch(EXAMPLES).repeat()
${early}\
    model.fit(dataset, steps_per_epoch=STEPS, verbose=0)
$read""")

_READ = Template("""\
    parts = strategy.experimental_local_results($place)
    return [np.float64(part.read_value().numpy()$element) for part in parts]
""")
# One device has variables whole.
_READ_SHARD = Template("""\
    cut = lambda v: [s.numpy() for s in v.variables] if hasattr(v, "variables") else (
        np.array_split(v.numpy(), min(CUT(v.shape, v.dtype)[0], v.shape[0])) if v.shape else [v])
    return [np.float64([s for v in $variables for s in cut(v)][$index]$element)]
""")  # noqa: E501  # by a word
_NUMBERED = re.compile(r"(.*)#([1-9]\d{0,3})", re.DOTALL)
"""Of several variables of one name, the bench numbers all but the first."""
# A variable of Keras 3 is a shell around that of the strategy.
_UNWRAPPED = 'v.value if type(v).__module__.startswith("keras.") else v'
_UNWRAP = f"    v = {_UNWRAPPED}\n"
_READ_SLOT = Template("""\
    held = [v for s in [$held] for v in (s() if callable(s) else s)]
    v = [v for v in held if getattr(v, "path", v.name).split(":")[0] == $name][$number]
""")
_VARIABLES = {"": "variables", "program": "program.variables()"}
_OPTIMIZERS = {"": "optimizer", "program": "program.optimizer()"}


def write_import(target: TargetRef) -> str:
    """What binds `subject`."""
    stem = Path(target.path).stem
    # Asking where a top-level module lies imports nothing.
    other = find_spec(stem) if stem.isidentifier() else None
    is_taken = other is not None and other.origin != target.path
    is_odd = is_taken or not stem.isidentifier()
    template = _ODD_FILE if target.path and is_odd else _MODULE
    return template.substitute(
        folder=ascii(target.search_path[0]),
        name=ascii(target.module or stem),
        path=ascii(target.path),
        attribute=target.attribute,
    )


def write_subject(case: Case) -> str:
    """The function that trains the subject and returns the number to look at.

    Raises:
        BadInputError: A script cannot show this number of such a subject.
    """
    is_scheduled = case.spec.traits.scheduled
    coordinator = ", coordinator=None" if is_scheduled else ""
    workload = case.scenario.workload
    restore = write_restore(case.scenario)
    if workload == MODEL:
        return _MODEL.substitute(
            seeds=_SEEDS,
            read=_write_reading(case, "model"),
            coordinator=coordinator,
            batches=max(case.steps, case.scenario.steps) if restore.early else "STEPS",
            early=restore.early,
        )
    if workload == PROGRAM:
        head = _PROGRAM.substitute(seeds=_SEEDS, cuts="cuts", coordinator=coordinator)
        read = _write_reading(case, "program")
    else:
        head = _write_optimizer(case, coordinator)
        read = _write_reading(case, "")
    if case.scenario.in_flight > 1:
        batch = "program.data(number)" if workload == PROGRAM else "data(number)"
        return head + _ROUNDS.substitute(
            in_flight=case.scenario.in_flight, batch=batch, read=read
        )
    return head + _LOOP.substitute(
        result=_write_result(case),
        early=restore.early,
        number=restore.number,
        numbers=restore.numbers,
        go_on=restore.go_on,
        before=_BEFORE if workload == PROGRAM else "",
        whole=_WHOLE if workload == PROGRAM else "",
        batch="whole" if workload == PROGRAM else "data(number)",
        cuts=_write_cuts(case),
        run=_SCHEDULED if is_scheduled else _TOGETHER,
        read=read,
    )


def write_reader(case: Case) -> str:
    """The function that trains on what was read of an input pipeline.

    Raises:
        BadInputError: A script cannot show this number of such a subject.
    """
    head = _PROGRAM.substitute(seeds=_SEEDS, cuts="batches", coordinator="")
    return head + _READ_LOOP.substitute(
        result=_write_result(case),
        before=_BEFORE,
        read=_write_reading(case, "program"),
    )


def _write_result(case: Case) -> str:
    """What a step is, as a function of the replicas' batches."""
    run = "strategy.run(replica_step, args=(batch,))"
    if not case.outcome or not _shows_loss(case):
        return run
    operation = "MEAN" if case.outcome.reduction == "mean" else "SUM"
    return f'strategy.reduce(\n        "{operation}", {run}, axis=None)'


def _write_cuts(case: Case) -> str:
    """Each replica's part of a batch; one device takes all of it."""
    resized = case.resized
    if not resized:
        return "cuts"
    late = ", ".join(f"{step}: {write_slices(s)}" for step, s in resized.items())
    found = f"{{{late}}}.get(number, cuts) if len(cuts) > 1 else [slice(None)]"
    return f"(\n            {found})"


def write_slices(sizes: tuple[int, ...]) -> str:
    """The slices of the replicas' parts of a batch."""
    cuts = shard_slices(sizes)
    return f"[{', '.join(f'slice({c.start}, {c.stop})' for c in cuts)}]"


def _shows_loss(case: Case) -> bool:
    return case.outcome is not None and case.outcome.phase == "loss"


def _write_optimizer(case: Case, coordinator: str) -> str:
    path = WRITTEN_PATHS[case.scenario.path]
    workload = write_workload(case.scenario)
    target = "scaled" if path.scales_loss else "loss"
    is_cut = bool(case.scenario.partitioner)
    trained = "shards" if is_cut else "variables"
    pairs = f"zip(tape.gradient({target}, {trained}), {trained})"
    configure = "".join(f"        {line}\n" for line in path.configure.splitlines())
    train = _OPTIMIZER.substitute(
        coordinator=coordinator,
        options=workload.options,
        flat=_FLAT if is_cut else "",
        trained=trained,
        configure=configure,
        weight=_write_weight(case.scenario.loss_weight),
        penalty=workload.penalty,
        scaled=_SCALED if path.scales_loss else "",
        apply=path.apply.format(pairs=pairs),
        result="        return loss\n" if _shows_loss(case) else "",
    )
    return path.defines + workload.defines + train


def _write_weight(weight: float) -> str:
    return "" if weight == 1 else f"{weight!r} * "


def _write_reading(case: Case, holder: str) -> str:
    """The end of `train`; `holder` names what has variables and optimizer."""
    outcome = case.outcome
    if outcome is None:
        return "    return [np.float64(0)]\n"
    if outcome.phase == "loss" and holder == "model":
        raise BadInputError(
            f"What is wrong in run '{case.run.scenario}' is a loss that nothing but "
            "'fit' sees, so a script without taps cannot show it. Expected a finding "
            "that spoils a variable."
        )
    if outcome.phase == "loss":
        return "    return [np.float64(loss)]\n"
    # Which element of steps in flight is wrong is chance: all are looked at.
    one = outcome.element if case.scenario.in_flight == 1 else ()
    element = f"[{', '.join(map(str, one))}]" if one else ""
    if case.scenario.partitioner and _is_listed(outcome):
        listed = _VARIABLES.get(holder, f"{holder}.variables")
        return _READ_SHARD.substitute(
            variables=f"[{_UNWRAPPED} for v in {listed}]" if holder else listed,
            index=outcome.index,
            element=element,
        )
    if not holder and _is_listed(outcome):
        return _READ.substitute(place=f"variables[{outcome.index}]", element=element)
    return _write_finding(outcome, holder) + _READ.substitute(
        place="v", element=element
    )


def _write_finding(outcome: Outcome, holder: str) -> str:
    """What binds `v` to a variable that Keras or an optimizer holds."""
    if _is_listed(outcome):
        listed = _VARIABLES.get(holder, f"{holder}.variables")
        return f"    v = {listed}[{outcome.index}]\n{_UNWRAP}"
    optimizer = _OPTIMIZERS.get(holder, "model.optimizer")
    several = f"o in tf.nest.flatten({optimizer})" if holder == "program" else ""
    if outcome.phase == "iterations":
        if several:
            counting = f"[o for {several} if hasattr(o, 'iterations')]"
            optimizer = f"{counting}[{max(0, outcome.index)}]"
        return f"    v = {optimizer}.iterations\n{_UNWRAP}"
    numbered = _NUMBERED.fullmatch(outcome.variable)
    name, number = numbered.groups() if numbered else (outcome.variable, 1)
    found = _READ_SLOT.substitute(
        held=f"o.variables for {several} if o" if several else f"{optimizer}.variables",
        name=ascii(name),
        number=int(number) - 1,
    )
    return found + _UNWRAP


def _is_listed(outcome: Outcome) -> bool:
    """Whether it is in the subject's own list: the model, and what updates it there."""
    return outcome.phase != "iterations" and outcome.index >= 0
