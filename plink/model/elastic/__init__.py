"""Messages of an elastic job, between its controller and the hosts' nodes."""
