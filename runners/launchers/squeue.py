"""What squeue prints of jobs (``--noheader --format=%A``; checked: 22.05.8)."""


def job_numbers(text: str) -> list[str]:
    """Their numbers, in its order; lines that are no number (a warning, a greeting of a wrapper) are passed over.

    >>> job_numbers("squeue: retry 5 of 10\\n 12\\n7 \\n")
    ['12', '7']
    """
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line.isascii() and line.isdigit() and len(line) < 19 and int(line)]
