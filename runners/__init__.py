"""Make it happen on hosts and watch it: how hosts are reached, how jobs are started, and the emulated lab."""
