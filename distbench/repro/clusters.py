"""The clusters as a script starts them."""

from __future__ import annotations

from string import Template

from distbench.cluster import ClusterSpec, spell_kinds
from distbench.errors import BadInputError
from distbench.partitioner import parse_partitioner

# Each makes a strategy, sets `first`, the number of this process' first replica, and
# has a place for what is done once there is a strategy and for what one device does.

_ONE = "[one] = train(tf.distribute.get_strategy(), [slice(0, EXAMPLES)])\n"
_LOGICAL = Template("""\
parts = [tf.config.LogicalDeviceConfiguration()] * $replicas
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], parts)
""")  # noqa: E501  # by a bracket
_SHARED = Template("""\
gpus = tf.config.list_physical_devices("GPU")
if len(gpus) < $replicas:  # then they share the first one
    parts = [tf.config.LogicalDeviceConfiguration(memory_limit=2048)] * $replicas
    tf.config.set_logical_device_configuration(gpus[0], parts)
""")
_REPLICAS = Template("""\
first, strategy = 0, $strategy
$before$one""")

_WORKERS = Template("""\
if len(sys.argv) < 2:  # starts itself once for each worker
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in CUTS]
    hosts = ["127.0.0.1:%d" % (s.getsockname()[1], s.close())[0] for s in sockets]
    tasks = [subprocess.Popen([sys.executable, *sys.argv, str(i)], env={
        **os.environ, "TF_CONFIG": json.dumps({"cluster": {"worker": hosts},
        "task": {"type": "worker", "index": i}})}) for i in range(len(hosts))]
    sys.exit(max(abs(task.wait()) for task in tasks))
first, strategy = int(sys.argv[1]), $strategy
${before}config = os.environ.pop("TF_CONFIG")  # which one device does not have
${one}os.environ["TF_CONFIG"] = config
""")

_SERVERS = Template("""\
[one] = train(tf.distribute.get_strategy(), CUTS)
jobs = ["worker"] * $workers + ["ps"] * $servers
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in jobs]
hosts = ["127.0.0.1:%d" % (s.getsockname()[1], s.close())[0] for s in sockets]
cluster = tf.train.ClusterSpec({"worker": hosts[:$workers], "ps": hosts[$workers:]})
os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster.as_dict(), "task": {"type": "chief"}})
servers = [tf.distribute.Server(cluster, job, i - jobs.index(job), "grpc")
           for i, job in enumerate(jobs)]
strategy = $strategy
first, coordinator = 0, tf.distribute.coordinator.ClusterCoordinator(strategy)
""")  # noqa: E501  # by a word


def write_cluster(
    spec: ClusterSpec, *, is_cut: bool = False, one: str = _ONE, before: str = ""
) -> str:
    """What starts a cluster, and before or after that trains on one device.

    Args:
        spec: Its spec, resolved.
        is_cut: Whether its parameter servers cut variables into shards, by `CUT`.
        one: Statements that train on one device; on parameter servers its own.
        before: Statements before these that need the strategy; none under `ps`.

    Raises:
        BadInputError: A single script does not start such a cluster.
    """
    kind, replicas = spec.traits, spec.replicas_per_worker
    is_large = spec.device == "gpu" or replicas != 1
    if not kind.strategy or (kind.tf_config and is_large):
        raise _make_refusal(spec)
    strategy = Template(kind.strategy).substitute(
        devices=spec.worker_devices, cut=", CUT" if is_cut else ""
    )
    if kind.scheduled:
        return _SERVERS.substitute(
            strategy=strategy, workers=spec.workers, servers=spec.parameter_servers
        )
    if kind.collective:
        return _WORKERS.substitute(strategy=strategy, one=one, before=before)
    devices = _SHARED if spec.device == "gpu" else _LOGICAL
    return devices.substitute(replicas=replicas) + _REPLICAS.substitute(
        strategy=strategy, one=one, before=before
    )


def _make_refusal(spec: ClusterSpec) -> BadInputError:
    expected = spell_kinds(lambda kind: bool(kind.strategy))
    return BadInputError(
        f"Cluster '{spec}' cannot be started by a single script. Expected {expected}, "
        "those of several tasks without GPUs. Check the subject on one of these."
    )


def write_partitioner(text: str) -> str:
    """The strategy's partitioner of that name; nothing for none."""
    if not text:
        return ""
    kind, numbers = parse_partitioner(text)
    name = {"fixed": "FixedShards", "min": "MinSize", "max": "MaxSize"}[kind]
    arguments = ", ".join(map(str, numbers))
    module = "tf.distribute.experimental.partitioners"
    return f"CUT = {module}.{name}Partitioner({arguments})\n"
