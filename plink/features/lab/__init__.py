"""Emulated clouds on this machine, and the demo that runs on one."""
