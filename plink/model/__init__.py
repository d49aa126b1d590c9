"""The domain model: hosts, networks, rank orders, schedules, plans, groups, topologies, and the files of them."""
