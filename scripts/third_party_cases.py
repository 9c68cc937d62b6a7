"""What `check_third_party.py` checks, what has to come out, and why it is believed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PLAIN = ("mirrored:2", "mwms:2", "mwms:4", "ps:2+1")
"""Clusters for optimizers as they are."""

SEVERAL = ("mirrored:2", "mwms:2", "mwms:4")
"""Clusters on which replicas sum: where each replica's step stands alone, as under
parameter servers, none of the planted bugs is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What every run of a subject on a cluster has to show.

    Attributes:
        status: The verdict.
        code: Code of the first finding; empty for none.
        phase: Its phase.
        variables: Endings of the name of its variable: one of them.
        origin: Its origin.
    """

    status: str
    code: str = ""
    phase: str = ""
    variables: tuple[str, ...] = ("",)
    origin: str = ""

    def __str__(self) -> str:
        if not self.code:
            return self.status
        return f"{self.status}, {self.code} in {self.phase}, {self.origin}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One optimizer or train program.

    Attributes:
        target: File in scenarios/third_party and attribute.
        label: What the table calls it.
        expected: By cluster: those that are checked.
        workloads: For an optimizer; empty takes the default ones.
        has_sparse_rule: Without one the bench's embedding is skipped.
    """

    target: str
    label: str
    expected: Mapping[str, Expected]
    workloads: tuple[str, ...] = ()
    has_sparse_rule: bool = True

    def expect(self, cluster: str, workload: str) -> Expected:
        """What a run has to show."""
        if workload == "embedding" and not self.has_sparse_rule:
            return SKIPPED
        return self.expected[cluster]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A line of an installed package; the script looks its number up.

    Attributes:
        file: Path below site-packages.
        text: Part of the line.
        says: What it shows.
    """

    file: str
    text: str
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package from PyPI.

    Attributes:
        name: Its name on PyPI.
        module: The factories in scenarios/third_party, which also say what to install.
        subjects: Its optimizers, as they are and with bugs.
        belief: Why we believe what the table says.
        quotes: The lines of source that this rests on.
    """

    name: str
    module: str
    subjects: tuple[Subject, ...]
    belief: str
    quotes: tuple[Quote, ...] = field(default=())


PASS = Expected(status="pass")
SKIPPED = Expected(status="skipped")
RAISES = Expected(
    status="fail", code="raises", phase="applied_gradient", origin="framework"
)
CLIPPED = Expected(
    status="fail",
    code="clip-before-reduction",
    phase="reduced_gradient",
    variables=("kernel", "table"),
    origin="subject",
)
NOT_SCALED = Expected(
    status="fail", code="loss-not-scaled", phase="loss", origin="subject"
)
NOT_REDUCED = Expected(
    status="fail",
    code="missing-reduction",
    phase="reduced_gradient",
    variables=("kernel", "table"),
    origin="subject",
)
FED_LOCALLY = Expected(
    status="fail",
    code="slot-from-local-gradient",
    phase="slot",
    variables=("/kernel/m",),
    origin="subject",
)


def _plant(
    optimizer: str,
    program: str,
    name: str,
    clusters: tuple[str, ...] = SEVERAL,
    has_sparse_rule: bool = True,
) -> tuple[Subject, ...]:
    """The three bugs of planted.py in one optimizer."""
    return (
        Subject(
            target=f"planted.py:{program}",
            label=f"{optimizer}, loss not divided by the global batch",
            expected=dict.fromkeys(clusters, NOT_SCALED),
        ),
        Subject(
            target=f"planted.py:make_{name}_unreduced",
            label=f"{optimizer}, identity `gradient_aggregator`",
            expected=dict.fromkeys(clusters, NOT_REDUCED),
            has_sparse_rule=has_sparse_rule,
        ),
        Subject(
            target=f"planted.py:make_{name}_fed_locally",
            label=f"{optimizer}, slot `m` fed with the local gradient",
            expected=dict.fromkeys(clusters, FED_LOCALLY),
            workloads=("linear",),
        ),
    )


_INSIDE = "tensorflow/python/keras/optimizer_v2/optimizer_v2.py"
_RAISES_IN_PROCESS = {**dict.fromkeys(PLAIN, PASS), "mirrored:2": RAISES}
_KERAS_ADAMW = Package(
    name="keras-adamw",
    module="from_keras_adamw",
    subjects=(
        Subject(
            target="from_keras_adamw.py:make_adamw",
            label="AdamW",
            expected=_RAISES_IN_PROCESS,
        ),
        Subject(
            target="from_keras_adamw.py:make_stock_adam",
            label="Adam of `tensorflow.python.keras`, for comparison",
            expected=_RAISES_IN_PROCESS,
        ),
        *_plant(
            "AdamW",
            "KerasAdamwLocalMean",
            "keras_adamw",
            # On `mirrored:2` it raises before a bug could show.
            clusters=("mwms:2", "mwms:4"),
        ),
    ),
    belief="""
AdamW raises `KeyError: 'kernel/replica_1_…'` in `get_slot` on the second replica of a
process. Its base class is the copy of Keras inside TensorFlow, which finds the slots of
a replica's copy of a variable by way of an attribute that TensorFlow sets on the copy's
*handle* today; tf_keras looks there too, the copy does not. Without it the name of the
copy itself is the key: on the first replica that is also the name of the whole
variable, so one replica in a process works, and `mwms` and `ps` pass. The fault is the
framework's: the stock Adam of that copy, in the same table, fails alike, and so does
the bench's control, the stock SGD with momentum. The same lines of TensorFlow without
the bench (`MirroredStrategy` on two CPU devices, one variable, one `apply_gradients`)
raise the same KeyError.
""",
    quotes=(
        Quote(
            file="tensorflow/python/distribute/values.py",
            text="v.handle._distributed_container = weakref.ref(self)",
            says="TensorFlow sets it on the handle",
        ),
        Quote(
            file=_INSIDE,
            text='if hasattr(var, "_distributed_container")',
            says="the copy of Keras looks at the variable alone",
        ),
        Quote(
            file="tf_keras/src/optimizers/legacy/optimizer_v2.py",
            text="var = var.handle._distributed_container()",
            says="tf_keras looks at the handle too",
        ),
        Quote(
            file="keras_adamw/optimizers_v2.py",
            text="from tensorflow.python.keras.optimizer_v2.optimizer_v2 import",
            says="the package builds on the copy",
        ),
    ),
)

_LARQ = Package(
    name="larq",
    module="from_larq",
    subjects=(
        Subject(
            target="from_larq.py:make_bop",
            label="Bop",
            expected=dict.fromkeys(PLAIN, PASS),
            has_sparse_rule=False,
        ),
        Subject(
            target="from_larq.py:make_case_optimizer",
            label="CaseOptimizer of Bop and Adam",
            expected=dict.fromkeys(PLAIN, PASS),
        ),
        *_plant("Bop", "LarqLocalMean", "larq", has_sparse_rule=False),
    ),
    belief="""
Bop has one slot, an average of the gradient, and only a rule for the update: the sum
over the replicas is that of the base class, and the rule runs on what was summed. A
weight flips where the average passes a threshold, so an average that is wrong by little
can leave all weights right; the slot is compared itself, and in the exact tier bit by
bit. CaseOptimizer hands each group of gradients to
an optimizer of its own, once per step, and these sum them: here kernels to Bop and all
else to Adam. Bop has no rule for sparse gradients, hence its skipped embedding; under
CaseOptimizer the embedding's table is Adam's. That these passes could have failed is
shown by the same Bop with bugs.
""",
    quotes=(
        Quote(
            file="larq/optimizers.py",
            text="m_t = m.assign_add(gamma * (grad - m))",
            says="the slot takes the gradient that the update is called with",
        ),
        Quote(
            file="larq/optimizers.py",
            text="optimizer.apply_gradients, args=(opt_grads_and_vars,)",
            says="CaseOptimizer leaves the sum to its optimizers",
        ),
    ),
)

_TF_MODELS = Package(
    name="tf-models-official",
    module="from_tf_models",
    subjects=(
        Subject(
            target="from_tf_models.py:make_adamw",
            label="AdamWeightDecay as it is",
            expected={**dict.fromkeys(SEVERAL, CLIPPED), "ps:2+1": PASS},
        ),
        Subject(
            target="from_tf_models.py:make_adamw_without_clipping",
            label="AdamWeightDecay, `gradient_clip_norm=0`",
            expected=dict.fromkeys(PLAIN, PASS),
        ),
        *_plant(
            "AdamWeightDecay, `gradient_clip_norm=0`", "TfModelsLocalMean", "tf_models"
        ),
    ),
    belief="""
By default AdamWeightDecay clips each replica's gradients by their own global norm and
sums them afterwards; its source says so and why. So it computes another thing on one
device than on two. By hand, with TensorFlow alone and `MirroredStrategy`: gradients of
3 and -2 on two replicas make a clipped sum of 1 - 1 = 0, and slot and variable stay
where they were, while one device with the gradient 1 moves the variable from 1 to 0.99.
The same class with `gradient_clip_norm=0` passes everywhere, so it is the clipping and
nothing else. Under parameter servers each step is one replica's and nothing is summed,
so there the order cannot matter, and it passes.
""",
    quotes=(
        Quote(
            file="official/modeling/optimization/legacy_adamw.py",
            text="gradient_clip_norm=1.0",
            says="it clips by default",
        ),
        Quote(
            file="official/modeling/optimization/legacy_adamw.py",
            text="(grads, _) = tf.clip_by_global_norm(",
            says="in apply_gradients, on what the replica computed",
        ),
        Quote(
            file="official/modeling/optimization/legacy_adamw.py",
            text="return super(AdamWeightDecay, self).apply_gradients(",
            says="and only then the base class sums",
        ),
    ),
)

_TRANSFORMERS = Package(
    name="transformers",
    module="from_transformers",
    subjects=(
        Subject(
            target="from_transformers.py:make_adamw",
            label="AdamWeightDecay",
            expected=dict.fromkeys(PLAIN, PASS),
        ),
        *_plant("AdamWeightDecay", "TransformersLocalMean", "transformers"),
    ),
    belief="""
This AdamWeightDecay has the same origin as that of tf-models-official, and its
docstring still promises to clip by global norm, but it does not: its `apply_gradients`
passes on what it gets, and clipping is left to the base class, after the sum. The decay
is part of the update, which runs once for each copy of a variable. That these passes
could have failed is shown by the same class with bugs, and by its sibling above: the
two differ in the clipping and in how they match names of variables.
""",
    quotes=(
        Quote(
            file="transformers/optimization_tf.py",
            text="return super().apply_gradients(zip(grads, tvars), name=name",
            says="gradients and flag reach the base class as they are",
        ),
        Quote(
            file="transformers/optimization_tf.py",
            text="decay = self._decay_weights_op(var, lr_t, apply_state)",
            says="the decay is part of the update",
        ),
    ),
)

PACKAGES = (_KERAS_ADAMW, _LARQ, _TF_MODELS, _TRANSFORMERS)
