"""One true path of each real thing, on lab hosts: what the quick tier keeps of labs, launchers and whole jobs."""
