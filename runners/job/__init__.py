"""Start one program as the ranks of a job, on the hosts and in the order asked for, and watch it to its end."""
