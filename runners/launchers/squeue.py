"""Parser of squeue's list of jobs (``--noheader --format=%A``; checked: 22.05.8)."""


def job_numbers(text: str) -> list[str]:
    """Return the job numbers in their order; skips other lines (a warning, a greeting of a wrapper).

    >>> job_numbers("squeue: retry 5 of 10\\n 12\\n7 \\n")
    ['12', '7']
    """
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line.isascii() and line.isdigit() and len(line) < 19 and int(line)]
