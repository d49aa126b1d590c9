"""Topologies of a measured network: where its hosts are, for those who place jobs, and for another simulator."""
