"""The clusters as a script starts them."""

from __future__ import annotations

from string import Template

from distbench.cluster import ClusterSpec
from distbench.errors import BadInputError

# Each sets `one`, the number on one device, `first`, the number of this process' first
# replica, and makes a strategy. Then `many` is set to the numbers of its replicas.

_LOGICAL = Template("""\
parts = [tf.config.LogicalDeviceConfiguration()] * $replicas
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], parts)
""")  # noqa: E501  # by a bracket
_REPLICAS = Template("""\
[one] = train(tf.distribute.get_strategy(), [slice(0, EXAMPLES)])
first, strategy = 0, $strategy
""")
_MIRRORED = Template("tf.distribute.MirroredStrategy($devices)")
_CENTRAL = Template("""\
tf.distribute.experimental.CentralStorageStrategy(
    compute_devices=$devices, parameter_device="cpu:0")""")

_WORKERS = """\
if len(sys.argv) < 2:  # starts itself once for each worker
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in CUTS]
    hosts = ["127.0.0.1:%d" % (s.getsockname()[1], s.close())[0] for s in sockets]
    tasks = [subprocess.Popen([sys.executable, *sys.argv, str(i)], env={
        **os.environ, "TF_CONFIG": json.dumps({"cluster": {"worker": hosts},
        "task": {"type": "worker", "index": i}})}) for i in range(len(hosts))]
    sys.exit(max(abs(task.wait()) for task in tasks))
first, strategy = int(sys.argv[1]), tf.distribute.MultiWorkerMirroredStrategy()
config = os.environ.pop("TF_CONFIG")  # which one device does not have
[one] = train(tf.distribute.get_strategy(), [slice(0, EXAMPLES)])
os.environ["TF_CONFIG"] = config
"""

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


def write_cluster(spec: ClusterSpec, partitioner: str = "") -> tuple[str, str]:
    """What trains on one device and starts a cluster, and what trains on that.

    Args:
        spec: Its spec, resolved.
        partitioner: Into which shards its parameter servers cut variables.

    Raises:
        BadInputError: A single script does not start such a cluster.
    """
    train = "many = train(strategy, CUTS)\n"
    if spec.kind == "mwms" and spec.device != "gpu" and spec.replicas_per_worker == 1:
        return _WORKERS, train
    if spec.kind == "ps" and spec.device != "gpu":
        servers = _SERVERS.substitute(
            workers=spec.workers,
            servers=spec.parameter_servers,
            cut=_write_partitioner(partitioner),
        )
        return servers, "many = train(strategy, CUTS, coordinator)\n"
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
    logical = _LOGICAL.substitute(replicas=replicas) if device == "cpu" else ""
    made = strategy.substitute(devices=named)
    return logical + _REPLICAS.substitute(strategy=made), train


def _write_partitioner(text: str) -> str:
    """The argument of the strategy that a partitioner is; nothing for none."""
    if not text:
        return ""
    kind, *numbers = text.split(":")
    name = {
        "fixed": "FixedShards",
        "min": "MinSize",
        "max": "MaxSize",
    }[kind]
    module = "tf.distribute.experimental.partitioners"
    return f",\n    {module}.{name}Partitioner({', '.join(numbers)})"
