"""What can go wrong, and with which exit code the command ends.

::

    PlinkError            1  something failed
    ├── UsageError        2  the command line asks for something that cannot be
    ├── InputError        2  a file says something that cannot be (names the file and the line or key)
    ├── HostError         1  one host could not be reached or used (names the host)
    │   └── UnknownHost   2  its name does not resolve: a typing error, not a fault
    ├── PartlyDone        3  some hosts or pairs are missing, the rest is there
    └── NoAnswer          4  the question has no answer

The message is one line: what, why, and what to type next where there is something to type.
"""


class PlinkError(Exception):
    """Base of everything plink raises on purpose; ``str(error)`` is one line for a person."""

    exit_code = 1


class UsageError(PlinkError):
    """The command line asks for something that cannot be."""

    exit_code = 2


class InputError(PlinkError):
    """A file or value handed in cannot be used; ``where`` names the file and the line or key."""

    exit_code = 2

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")
        self.where = where
        self.why = why


class HostError(PlinkError):
    """One host could not be reached or used."""

    def __init__(self, host: str, why: str) -> None:
        super().__init__(f"{host}: {why}")
        self.host = host
        self.why = why


class UnknownHost(HostError):
    """A host's name does not resolve: more likely a typing error than a fault, so nothing is begun."""

    exit_code = 2


class PartlyDone(PlinkError):
    """Some hosts or pairs are missing; what could be had was written."""

    exit_code = 3


class NoAnswer(PlinkError):
    """The question has no answer."""

    exit_code = 4
