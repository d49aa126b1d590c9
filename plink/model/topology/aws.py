"""AWS: what ``aws ec2 describe-instance-topology`` prints.

``NetworkNodes`` is read top first, as the EC2 User Guide has it ("a top-down view of the network hierarchy, with the
bottom node connected to an instance"; "How Amazon EC2 topology works"). Topograph's documentation says the opposite,
its code (pkg/providers/aws, ``convert``) does as Amazon says. Instance types have three nodes or four.
"""

from typing import Any

from plink.model.topology.fields import list_of, object_of, text_of
from plink.model.topology.paths import Gathering, Topology, path_of


def from_aws(instances: list[Any], place: str, where: str) -> Topology:
    """Hosts by instance id, under zone, network nodes, and the UltraServer (``CapacityBlockId``) where there is one.

    :raises InputError: naming the entry that is wrong.
    """
    found = Gathering("aws", where)
    for index, entry in enumerate(instances):
        here = f"{place}[{index}]"
        instance = object_of(entry, here)
        zone = text_of(instance.get("ZoneId"), f"{here}.ZoneId")
        named_zone = text_of(instance.get("AvailabilityZone"), f"{here}.AvailabilityZone")
        nodes = list_of(instance.get("NetworkNodes"), f"{here}.NetworkNodes")
        levels = [text_of(node, f"{here}.NetworkNodes[{level}]") for level, node in enumerate(nodes)]
        block = text_of(instance.get("CapacityBlockId"), f"{here}.CapacityBlockId")
        found.add(instance.get("InstanceId"), path_of([zone or named_zone], [*(levels or [None]), block]), here)
    return found.topology()
