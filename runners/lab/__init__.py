"""An emulated cloud on one machine: real hosts (network namespaces with their own sshd) in racks behind real routers.

::

    ctl ── core ─┬─ rack0 ═ bridge ═ host host host     every ── is a veth pair, every name a network namespace;
                 ├─ rack1 ═ bridge ═ host host host     hosts and uplinks are rate-limited (tbf) in both directions
                 └─ ...

No interface of a lab stands in the machine's own namespace, no lab namespace has a default route, and while a lab is
up the machine itself holds an *unreachable* route for 198.18.0.0/15: a packet for a lab address has no way out.
"""
