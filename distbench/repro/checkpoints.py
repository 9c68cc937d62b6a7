"""How a script goes on from a checkpoint: one device saves it, the cluster restores it.

One device then simply trains on, so that it has what a checkpoint ought to hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import Template
from textwrap import indent

from distbench.scenario import Scenario
from distbench.scenario.choices import MODEL, PROGRAM

_EARLY = Template("""\
early = $saved if (alone := strategy is tf.distribute.get_strategy()) else $after
""")
_GO_ON = Template("""\
with strategy.scope(): kept = $checkpoint
with strategy.scope(): (kept.write if alone else kept.restore)("ram://kept")
""")
_CHECKPOINTS = {
    MODEL: "tf.train.Checkpoint(model=model)",
    PROGRAM: (
        'program.checkpoint() if hasattr(program, "checkpoint") else (\n'
        "        tf.train.Checkpoint(variables=list(program.variables()),\n"
        "        optimizers=[o for o in tf.nest.flatten(program.optimizer()) if o]))"
    ),
}
_OF_OPTIMIZER = "tf.train.Checkpoint(variables=variables, optimizers=[optimizer])"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRestore:
    """How a script trains before it saves or restores, as lines of `train`.

    Attributes:
        early: Statements that say who does what; none where nothing is restored.
        number: What the loop counts by.
        numbers: What it goes through.
        go_on: Statements at the begin of each round.
    """

    early: str = ""
    number: str = "number"
    numbers: str = "range(STEPS)"
    go_on: str = ""


def write_restore(scenario: Scenario) -> WrittenRestore:
    """What the loop of a script has to do for a checkpoint.

    Args:
        scenario: What was run.
    """
    if not scenario.restore_from:
        return WrittenRestore()
    early = _EARLY.substitute(saved=scenario.steps, after=scenario.restore_after)
    checkpoint = _CHECKPOINTS.get(scenario.workload, _OF_OPTIMIZER)
    go_on = _GO_ON.substitute(checkpoint=checkpoint)
    if scenario.workload == MODEL:
        early += "early and model.fit(dataset, steps_per_epoch=early, verbose=0)\n"
        return WrittenRestore(early=indent(early + go_on, " " * 4))
    return WrittenRestore(
        early=indent(early, " " * 4),
        number="i, number",
        numbers="enumerate([*range(early), *range(STEPS)])",
        go_on=indent(f"if i == early:\n{indent(go_on, ' ' * 4)}", " " * 8),
    )
