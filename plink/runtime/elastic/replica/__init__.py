"""One partition at one server: its role, its mailbox thread, replication and migration."""
