"""Topology files that are refused: where in the file, and why, in one line."""

import json
from typing import Any

import pytest

from plink.errors import InputError
from tests.model.test_topology_slurm import slurm_yaml
from tests.model.topologies import read


def instance(**fields: Any) -> str:
    """An AWS answer of one instance."""
    return json.dumps({"Instances": [{"InstanceId": "i-1", "NetworkNodes": ["nn-1"]} | fields]})


def gcp(**status: Any) -> str:
    """A Google answer of one instance."""
    return json.dumps([{"name": "vm-1", "resourceStatus": status}])


BAD = [
    ("", "t", "not a topology that plink reads"),
    ("[" * 100_000, "t", "nested too deeply"),
    ("[1, null]", "t", "not a topology that plink reads"),
    ('{"schema": "plink.network/1", "hosts": []}', "t", "not a topology that plink reads"),
    ('{"Instances": {"InstanceId": "i-1"}}', "t: Instances", "a list was expected, this is an object"),
    (instance(InstanceId="-oProxyCommand=x"), "t: Instances[0]", "cannot be a host name"),
    (instance(NetworkNodes="nn-1"), "t: Instances[0].NetworkNodes", "a list was expected, this is 'nn-1'"),
    (instance(NetworkNodes=["a" * 600]), "t: Instances[0].NetworkNodes[0]", "600 characters"),
    (instance(NetworkNodes=None), "t", "without their positions"),
    (
        json.dumps({"Instances": [{"InstanceId": "i-1", "ZoneId": zone, "NetworkNodes": [zone]} for zone in "zy"]}),
        "t: Instances[1]",
        "listed twice, below 'z/z' and 'y/y'",
    ),
    ('{"n1": "r1"} {"n1": "r2"}', "t (document 2)", "'n1' is listed twice, below 'r1' and 'r2'"),
    ('{"n1": "r1"}\n{"n1": NaN}', "t", "NaN"),
    ('{"n1": "r1"} {"n1"', "t:1", "not JSON"),
    ("n1 r1\nn1 r2", "t:2", "'n1' is listed twice, below"),
    ("n1 r1\nn2", "t", "not a topology that plink reads"),
    ("n1 r1\n= :\n", "t", "not a topology that plink reads"),
    ("host,rack\nn1", "t:2", "a host and where it is were expected"),
    ("include missing.conf", "missing.conf", "no such file"),
    (gcp(physicalHost="/a/b"), "t[0].resourceStatus.physicalHost", "not of the form /block/subblock/host"),
    (
        json.dumps([{"name": "a", "networkInterfaces": [{"accessConfigs": 1}]}]),
        "t[0].networkInterfaces[0].accessConfigs",
        "a list was expected",
    ),
    ('{"instances": [{"id": "a", "network_layers": {}}]}', "t: instances[0].network_layers", "a list was expected"),
    ('{"items": [{"metadata": {"name": "a", "labels": []}}]}', "t: items[0].metadata.labels", "an object was"),
    ("SwitchName=a Nodes=node[1-999999999]", "t:1", "makes more than 65536 hosts"),
    ("SwitchName=a Nodes=n[4-1]", "t:1", "ends before it begins"),
    ("SwitchName=a Nodes=n[[1]]", "t:1", "is not a list of hosts"),
    ("SwitchName=a Nodes=n[a-c]", "t:1", "neither a number nor a range"),
    ("SwitchName=a Nodes=$(reboot)", "t:1", "cannot be a host name"),
    ("SwitchName=a Nodes=n1\n\nSwitchName=b Nodes=n1", "t:3", "'n1' is listed twice, below 'a' and 'b'"),
    ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", "t:2", "defined twice"),
    ("SwitchName=a Switches=b", "t:1", "'b' is not defined"),
    ("SwitchName=b Nodes=n2\nSwitchName=a Switches=b Nodes=n1", "t:2", "both switches and nodes"),
    ("n1 slots=2\nn2 slots=2", "t:1", "'slots=2' is no host and no rack"),
    ("n1 10.0.0.1:22\nn2 10.0.0.2:22", "t:1", "'10.0.0.1:22' is no host and no rack"),
    ("127.0.0.1 localhost\n10.0.0.1 n1", "t", "as in /etc/hosts"),
    (
        json.dumps({"Reservations": [{"Instances": [{"InstanceId": "i-1", "PrivateIpAddress": "10.0.0.1"}]}]}),
        "t",
        "names of instances only",
    ),
    ("SwitchName=a Nodes=n\nSwitchName=b Switches=a,c\nSwitchName=c Switches=b", "t:1", "more than 16 switches above"),
    ("SwitchName=a Switches=c\nSwitchName=b Switches=c\nSwitchName=c Nodes=n", "t:2", "is below 'a' and 'b'"),
    ("SwitchName=a Hosts=n1", "t:1", "unknown key 'Hosts'"),
    ("RingName=r Nodes=n1", "t:1", "topology/ring is not read"),
    ("SwitchName=a Nodes=n1\nNodes=n2", "t:2", "neither SwitchName, BlockName nor BlockSizes"),
    ("SwitchName=a Nodes=n1\nBlockName=b Nodes=n2", "t", "both switches and blocks"),
    ("BlockName=b Nodes=n1\nBlockSizes=4,4", "t:2", "4 is not a larger power of two of 4"),
    ("BlockName=b Nodes=n1\nBlockName=b Nodes=n2", "t:2", "defined twice"),
    (slurm_yaml("    - nodes: n1"), "t: [0].tree.switches[0]", "it has no switch"),
    (slurm_yaml("    - switch: &x a"), "t:4", "aliases"),
    (slurm_yaml("    - switch: a\n        nodes: n1"), "t:5", "YAML"),
    (slurm_yaml("    - switch: a\n\tnodes: n1"), "t:5", "YAML"),
    (slurm_yaml("    - switch: a\n      nodes: [1-2]"), "t: [0].tree.switches[0].nodes", "a text was expected"),
    (slurm_yaml("    - switch: a\n      nodes: n1\n      nodes: n2"), "t:4", "comes twice"),
    (slurm_yaml("    - switch: !!python/name:os.system a"), "t:4", "tags"),
    (slurm_yaml("    - switch: " + 40 * "[" + 40 * "]"), "t:4", "nested too deeply"),
    (slurm_yaml("    - switch: \0"), "t", "YAML"),
    ("- topology: a\n  flat: true\n", "t", "none of its topologies is a tree"),
    (
        slurm_yaml("    - switch: a\n      nodes: n1")
        + slurm_yaml("    - switch: a\n      nodes: n1").replace("t\n", "u\n", 1),
        "t",
        "name one of t, u",
    ),
]


@pytest.mark.parametrize(("text", "location", "reason"), BAD, ids=range(len(BAD)))
def test_what_cannot_be_is_refused_with_its_place_on_one_line(text: str, location: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text)
    assert caught.value.location == location
    assert reason in caught.value.reason
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
