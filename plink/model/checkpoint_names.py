"""Names of checkpoints of elastic jobs in their folder: ``clock-K-JOB/partition-P``."""


def name_of(clock: int, job: str) -> str:
    """Return the folder of one checkpoint of a job, which no other job writes in or removes."""
    return f"clock-{clock}-{job}"


def partition_file(number: int) -> str:
    """Return the file of one partition, in the folder of its checkpoint."""
    return f"partition-{number}"
