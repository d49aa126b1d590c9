"""What squeue prints of jobs (``--noheader --format=%A``; checked: 22.05.8)."""


def job_numbers(text: str) -> list[str]:
    """Their numbers, in its order; what is no number (a warning, a greeting of a wrapper) is passed over.

    >>> job_numbers("warning: slow\\n 12\\n7 \\n")
    ['12', '7']
    """
    return [word for word in text.split() if word.isascii() and word.isdigit() and len(word) < 19 and int(word)]
