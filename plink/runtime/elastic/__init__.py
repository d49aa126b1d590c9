"""Elastic jobs on a parameter server, after AgileML (Harlap et al., EuroSys 2017).

``node.py`` is the process of one host and ``local.py`` a whole job in one process. Below them, each package imports
only packages further down:

- ``host``: the program's file, memory limits, preemption notices, the folder of checkpoints, the control channel
- ``worker``: the loop over clocks, shards and their assignment, the parameter client and its cache
- ``server``: the partitions of one host; ``request_handlers``: the controller's requests about them
- ``replica``: one partition at one server: role, mailbox thread, replication, migration
- ``partition``: the state of a partition: updates, undo log, and how it is serialized
- ``transport``: run keys, sealed records, messages, connections
- ``arrays``: rows of tables as arrays

A user's program imports :mod:`plink.elastic`.
"""
