"""Read the topology of AWS (``aws ec2 describe-instance-topology``).

``NetworkNodes`` is read top first, as the EC2 User Guide has it ("a top-down view of the network hierarchy, with the
bottom node connected to an instance"; "How Amazon EC2 topology works"). Topograph's documentation says the opposite,
its code (pkg/providers/aws, ``convert``) does as Amazon says. Instance types have three nodes or four.
"""

from plink.model.topology.fields import Entries, list_of, object_of, text_of
from plink.model.topology.paths import Topology, TopologyBuilder, path_of


def from_aws(instances: Entries, location: str) -> Topology:
    """Return hosts by instance id, under zone, network nodes, and the UltraServer (``CapacityBlockId``) where there is
    one.

    :raises InputError: naming the entry that is wrong.
    """
    builder = TopologyBuilder("aws", location)
    for entry_location, entry in instances:
        instance = object_of(entry, entry_location)
        zone = text_of(instance.get("ZoneId"), f"{entry_location}.ZoneId")
        named_zone = text_of(instance.get("AvailabilityZone"), f"{entry_location}.AvailabilityZone")
        nodes = list_of(instance.get("NetworkNodes"), f"{entry_location}.NetworkNodes")
        levels = [text_of(node, f"{entry_location}.NetworkNodes[{level}]") for level, node in enumerate(nodes)]
        block = text_of(instance.get("CapacityBlockId"), f"{entry_location}.CapacityBlockId")
        builder.add(
            instance.get("InstanceId"), path_of([zone or named_zone], [*(levels or [None]), block]), entry_location
        )
    return builder.topology()
