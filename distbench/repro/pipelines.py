"""A program that brings an input pipeline, as a script reads and trains on it.

The cluster reads first, since in which order it does need not be that of one device. An
example is known by its content.
"""

from __future__ import annotations

from string import Template

from distbench.repro.case import Case
from distbench.repro.clusters import write_cluster
from distbench.repro.subjects import write_reader

_MOST_BATCHES = 512
"""Batches of an epoch that are read at most: as many as a check reads."""

_READ = Template("""\
def read(strategy):  # what the replicas get, and all of it together
    program = subject() if isinstance(subject, type) else copy.deepcopy(subject)
    with strategy.scope():
        program.build(strategy)
    shares = strategy.distribute_datasets_from_function(program.dataset_fn) if getattr(
        program, "dataset_fn", None) else strategy.experimental_distribute_dataset(program.dataset())
    gather = tf.function(lambda b: tf.nest.map_structure(lambda a: strategy.gather(a, 0), b))
    found = [(batch, tf.nest.map_structure(np.asarray, gather(batch)))
             for batch in itertools.islice(shares, $most)]
${late}\
    return $found
""")  # noqa: E501  # by a word
_LATE = Template("""\
    sizes = [len(tf.nest.flatten(whole)[0]) for _, whole in found]
    late = [n for n in range($steps, len(sizes)) if sizes[n] not in sizes[:$steps]]
    if late: found[$last] = found[late[0]]  # a batch of another size
""")
_EXAMPLES = """\
[[str(example) for example in zip(*[a.tolist() for a in tf.nest.flatten(whole)])]
            for _, whole in found]"""

_ONE, _MANY, _ONE_OF_CLUSTER, _BEFORE = (
    "train(tf.distribute.get_strategy(), read(tf.distribute.get_strategy()))\n",
    "train(strategy, read(strategy))\n",
    "[one] = train(tf.distribute.get_strategy(), [(w, w) for _, w in batches])\n",
    "batches = read(strategy)\nmany = train(strategy, batches)\n",
)

_COUNT = Template("""\
once, seen = (collections.Counter(sum(batches, [])) for batches in (one, many))
if max(len(one), len(many)) < $most:  # both came to the end of the epoch
    again = sum((seen - once)[example] for example in once)
    new = sum(seen[example] for example in seen if example not in once)
    never = max(0, (once - seen).total() - new)
else:  # there is no end: do all replicas read the same, or do all read less?
    n, come_round = len(CUTS), min(*once.values(), *seen.values()) > 1
    new = len(set(seen) - set(once))
    again = len(sum(many, [])) * all(b[:len(b) // n] * n == b for b in many)
    never = come_round * max(0, len(set(once) - set(seen)) - new)
first or print(f"one device reads {once.total()} examples, the cluster {seen.total()}: "
               f"{again} come again, {never} never come, {new} are others", flush=True)
os._exit(scratch.cleanup() or $wrong > 0)
""")


def write_count(case: Case) -> str:
    """What holds the examples of `one` against those of `many`, and ends the script."""
    wrong = "again + never + new" if case.has_other_examples else "again + never"
    return _COUNT.substitute(most=_MOST_BATCHES, wrong=wrong)


def write_pipeline(case: Case) -> tuple[str, str, str]:
    """Functions that read and train, what starts the cluster, and what uses it.

    Raises:
        BadInputError: A script cannot show this number of such a subject.
    """
    if case.counts_examples:
        read = _READ.substitute(most=_MOST_BATCHES, late="", found=_EXAMPLES)
        one = "one = read(tf.distribute.get_strategy())\n"
        return read, write_cluster(case.spec, one=one), "many = read(strategy)\n"
    functions = f"{_write_read(case)}{write_reader(case)}"
    if case.raises:
        return functions, write_cluster(case.spec, one=_ONE), _MANY
    return functions, write_cluster(case.spec, one=_ONE_OF_CLUSTER, before=_BEFORE), ""


def _write_read(case: Case) -> str:
    steps = case.scenario.steps
    if not case.resized:
        return _READ.substitute(most="STEPS", late="", found="found")
    late = _LATE.substitute(steps=steps, last=steps - 1)
    return _READ.substitute(most=_MOST_BATCHES, late=late, found="found[:STEPS]")
