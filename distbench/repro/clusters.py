"""The clusters as a script starts them."""

from __future__ import annotations

from string import Template

from distbench.cluster import ClusterSpec
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
_MIRRORED = Template("tf.distribute.MirroredStrategy($devices)")
_CENTRAL = Template("""\
tf.distribute.experimental.CentralStorageStrategy(
    compute_devices=$devices, parameter_device="cpu:0")""")

_WORKERS = Template("""\
if len(sys.argv) < 2:  # starts itself once for each worker
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in CUTS]
    hosts = ["127.0.0.1:%d" % (s.getsockname()[1], s.close())[0] for s in sockets]
    tasks = [subprocess.Popen([sys.executable, *sys.argv, str(i)], env={
        **os.environ, "TF_CONFIG": json.dumps({"cluster": {"worker": hosts},
        "task": {"type": "worker", "index": i}})}) for i in range(len(hosts))]
    sys.exit(max(abs(task.wait()) for task in tasks))
first, strategy = int(sys.argv[1]), tf.distribute.MultiWorkerMirroredStrategy()
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
strategy = tf.distribute.ParameterServerStrategy(
    tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")$cut)
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
    if spec.kind == "mwms" and spec.device != "gpu" and spec.replicas_per_worker == 1:
        return _WORKERS.substitute(one=one, before=before)
    if spec.kind == "ps" and spec.device != "gpu":
        return _SERVERS.substitute(
            workers=spec.workers,
            servers=spec.parameter_servers,
            cut=", CUT" if is_cut else "",
        )
    if spec.kind not in ("mirrored", "central"):
        raise BadInputError(
            f"Cluster '{spec}' cannot be started by a single script. Expected "
            "mirrored:R, central:R, mwms:W or ps:W+P, the last two without GPUs. Check "
            "the subject on one of these."
        )
    device = spec.device or "cpu"
    replicas = spec.replicas_per_worker
    named = str([f"{device}:{i}" for i in range(replicas)])
    strategy = _MIRRORED if spec.kind == "mirrored" else _CENTRAL
    logical = (_LOGICAL if device == "cpu" else _SHARED).substitute(replicas=replicas)
    made = strategy.substitute(devices=named)
    return logical + _REPLICAS.substitute(strategy=made, one=one, before=before)


def write_partitioner(text: str) -> str:
    """The strategy's partitioner of that name; nothing for none."""
    if not text:
        return ""
    kind, numbers = parse_partitioner(text)
    name = {"fixed": "FixedShards", "min": "MinSize", "max": "MaxSize"}[kind]
    arguments = ", ".join(map(str, numbers))
    module = "tf.distribute.experimental.partitioners"
    return f"CUT = {module}.{name}Partitioner({arguments})\n"
