"""What is asked of an engine, and what is said where there is none."""

from __future__ import annotations

import importlib
import socket
import sys

import pytest

from distbench.cluster import ClusterSpec
from distbench.engine_names import ENGINES
from distbench.engines import make_demand, open_engine, ray, slurm
from distbench.errors import BadInputError, ClusterError
from distbench.launch.engine import Demand
from distbench.launch.local import LocalEngine


def parse(*texts: str) -> list[ClusterSpec]:
    return [ClusterSpec.parse(text) for text in texts]


def test_every_engine_of_the_options_can_be_opened() -> None:
    for name in set(ENGINES) - {"local"}:
        module = importlib.import_module(f"distbench.engines.{name}")
        assert callable(module.open_engine)
    with open_engine("local", [parse("mwms:all")]) as engine:
        assert isinstance(engine, LocalEngine)


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(BadInputError, match="Did you mean 'slurm'"):
        open_engine("slurn", [parse("one")])


@pytest.mark.parametrize(
    ("texts", "jobs", "tasks", "least", "gpus"),
    [
        (["one"], 1, 1, 1, 0),
        (["mwms:2", "ps:2+1"], 1, 4, 4, 0),
        (["mwms:2x8@gpu", "mwms:4"], 1, 4, 4, 8),
        (["mirrored:4@gpu"], 1, 1, 1, 4),
        (["mirrored:4"], 1, 1, 1, 0),
        (["mwms:2", "ps:2+1", "mwms:3"], 2, 7, 4, 0),
        (["mwms:2"], 4, 2, 2, 0),
    ],
    ids=str,
)
def test_the_largest_clusters_are_asked_for(
    texts: list[str], jobs: int, tasks: int, least: int, gpus: int
) -> None:
    demand = make_demand([[spec] for spec in parse(*texts)], jobs)
    assert demand == Demand(tasks=tasks, least=least, gpus_per_task=gpus)


def test_a_scenario_has_one_of_its_clusters_at_a_time() -> None:
    scenario = parse("mirrored:4@gpu", "mwms:2")
    assert make_demand([scenario], 2) == Demand(tasks=2, least=2, gpus_per_task=4)


@pytest.mark.parametrize(("places", "tasks"), [(9, 8), (8, 8), (5, 5), (2, 4)], ids=str)
def test_no_more_is_asked_for_than_there_is_but_for_one_scenario(
    places: int, tasks: int
) -> None:
    limited = Demand(tasks=8, least=4, gpus_per_task=0).limit(places)
    assert (limited.tasks, limited.least) == (tasks, 4)


PLACES = pytest.mark.parametrize(("gpus", "places"), [(0, 6), (1, 5), (2, 2)], ids=str)


@PLACES
def test_the_places_of_a_ray_cluster_are_counted_node_by_node(
    gpus: int, places: int
) -> None:
    nodes = [
        {"Alive": True, "Resources": {"memory": 1.0}},
        {"Alive": True, "Resources": {"CPU": 9.0, "GPU": 3.0}},
        {"Alive": True, "Resources": {"CPU": 4.0, "GPU": 2.0}},
        {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}},
    ]
    assert ray.count_places(nodes, gpus) == places


@PLACES
@pytest.mark.parametrize("partition", ["", "long,all"])
def test_the_places_of_a_partition_are_counted_node_by_node(
    gpus: int, places: int, partition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = (
        "all* 9 gpu:fake:3(S:0) idle\nall* 4 gpu:2 allocated\nall* 64 gpu:8 down*\n"
        "other 64 gpu:8 idle\n"
    )
    monkeypatch.setenv("SALLOC_PARTITION", partition)
    monkeypatch.setattr(slurm, "ask_slurm", lambda *_: shown)
    assert slurm.count_places(gpus) == places


@pytest.mark.parametrize("text", ["mwms:all", "mwms:2xall@gpu"])
def test_an_open_number_is_refused(text: str) -> None:
    with pytest.raises(BadInputError, match=rf"'{text}' does not say how many"):
        make_demand([parse("mwms:2", text)])


def test_a_machine_without_slurm_is_told_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    missing = pytest.raises(BadInputError, match="Missing: salloc, srun, scontrol")
    with missing, open_engine("slurm", [parse("mwms:2")]):
        pass


def test_a_machine_without_ray_is_told_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    missing = pytest.raises(BadInputError, match=r"pip install 'distbench\[ray\]'")
    with missing, open_engine("ray", [parse("mwms:2")]):
        pass


@pytest.mark.parametrize(
    ("name", "resolved", "address"),
    [
        ("n2", "10.0.0.2", "10.0.0.2"),
        # As Debian's /etc/hosts has a host's own name.
        ("n1", "127.0.1.1", ""),
        ("127.0.0.11", "127.0.0.11", "127.0.0.11"),
    ],
)
def test_a_node_is_known_by_an_address_that_others_reach(
    name: str, resolved: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm.socket, "gethostbyname", {name: resolved}.get)
    assert slurm.find_address(name) == address


def test_a_node_that_only_slurm_knows_says_its_address_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(name: str) -> str:
        raise socket.gaierror(f"no {name}")

    monkeypatch.setattr(slurm.socket, "gethostbyname", fail)
    assert slurm.find_address("n3") == ""


def test_the_bench_has_an_address_that_other_nodes_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = {"127.0.0.11": "127.0.0.1", "10.0.0.2": "10.0.0.1"}
    monkeypatch.setattr(slurm, "find_address_towards", own.__getitem__)
    assert slurm.choose_host(["", "127.0.0.11", "10.0.0.2"]) == "10.0.0.1"
    assert slurm.choose_host(["127.0.0.11"]) == slurm.choose_host([""]) == "127.0.0.1"


_JOB = (
    "JobId=7 JobName=distbench NodeList=n[1-2],n10 TRES=cpu=6,node=3 "
    "JOB_GRES=gpu:fake:5   Nodes=n[1-2] CPU_IDs=0-1 Mem=0 "
    "GRES=gpu:fake:2(IDX:0-1)   Nodes=n10 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:3) "
    "MinCPUsNode=1"
)
_NODE = "NodeName={0} CPUTot=4 Gres=gpu:fake:2 NodeAddr=127.0.0.{1} RealMemory=4000"


def test_the_nodes_of_a_job_come_with_the_gpus_that_belong_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = {
        ("job", "--details", "--oneliner", "7"): _JOB,
        ("hostnames", "n[1-2]"): "n1\nn2\n",
        ("hostnames", "n10"): "n10\n",
        **{
            ("node", "--oneliner", name): _NODE.format(name, name[1:])
            for name in ("n1", "n2", "n10")
        },
    }
    monkeypatch.setattr(slurm, "ask_slurm", lambda *command: said[command[2:]])
    nodes = slurm.list_nodes("7")
    assert [(n.name, n.address, n.gpus) for n in nodes] == [
        ("n1", "127.0.0.1", 2),
        ("n2", "127.0.0.2", 2),
        ("n10", "127.0.0.10", 1),
    ]
    assert [n.cpus for n in nodes] == [2, 2, 1]
    assert {n.memory_bytes for n in nodes} == {4000 << 20}


@pytest.mark.parametrize(
    "said", ["JobId=7 JobState=PENDING", _JOB.split("   ")[0] + " Nodes=n1 CPU_IDs= "]
)
def test_a_job_whose_nodes_are_not_told_is_no_job_without_gpus(
    monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setattr(slurm, "ask_slurm", lambda *_: said)
    with pytest.raises(ClusterError, match=r"job 7 has\. .*Received: JobId=7"):
        slurm.list_nodes("7")
