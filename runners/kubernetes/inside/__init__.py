"""Programs that run in pods. Standard library only, Python 3.8: sent as files of a ConfigMap."""
