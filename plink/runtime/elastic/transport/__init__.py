"""Authenticated, encrypted connections between the processes of a job, and the messages on them."""
