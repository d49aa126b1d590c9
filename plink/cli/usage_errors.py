"""Usage errors in plink's words: what a library says of a value, and options that people know from other launchers."""

import difflib
import re

# What torchrun, mpirun, srun, horovodrun, deepspeed and accelerate call it, and what to type here.
_MEANINGS = {
    "--nproc --nproc-per-node -np --np -n -N -ppn --ntasks --ntasks-per-node --npernode --num-proc --num-processes "
    "--num-gpus": "the hosts file says how many ranks a host takes (node1 slots=4); with --runner local --slots N does",
    "--hostfile --machinefile --default-hostfile -H --host --nodelist -f": "the file with the hosts is --hosts FILE",
    "--nnodes --nodes --num-nodes --num-machines": "a job takes all hosts of --hosts FILE",
    "--master-port --main-process-port": "write --set master-port=N",
    "--master-addr --node-rank --machine-rank --rdzv-endpoint --rdzv-backend --rdzv-id --rdzv-conf --standalone "
    "--main-process-ip": "plink sets it for each rank: leave it out",
    "-x -genv --export": "write --env NAME=VALUE",
    "--mca --bind-to --map-by --rank-by --report-bindings --oversubscribe": "options of the launcher go through "
    '--launcher-args "..."',
    "-m --module": "write the command: plink launch python3 -m MODULE",
    "--max-restarts": "pipelines restart by --set restarts=N, elastic jobs by themselves (plink elastic run)",
}
_OF_OTHERS = {name: meaning for names, meaning in _MEANINGS.items() for name in names.split()}
_PRICES = "price histories are given by --prices FILE, once for each file"
_OF_SPOT = {"--market": "the market file comes first: plink spot COMMAND MARKET --prices FILE"}
# What Pydantic says, which Typer reads values with, and what that means.
_PHRASES = (
    (r"Value error, ", ""),
    (r"Input should be a valid integer.*?(?= \(|$)", "it must be a whole number"),
    (r"Input should be a valid number.*?(?= \(|$)", "it must be a number"),
    (r"Input should be a finite number", "it must be a finite number"),
    (r"Input should be greater than or equal to (\S+)", r"it must be \1 or more"),
    (r"Input should be less than or equal to (\S+)", r"it must be \1 or less"),
    (r"Input should be greater than (\S+)", r"it must be more than \1"),
    (r"Input should be less than (\S+)", r"it must be less than \1"),
    (r"Input should be (?:a|an|in) (.*)", r"it must be \1"),
)


def in_our_words(message: str, words: list[str]) -> str:
    """The message of a usage error, with what the user meant where that can be told.

    :param words: the whole command line.
    """
    if unknown := re.match(r"No such option: (-\S+)", message):
        name = unknown[1]
        if not name.startswith("--"):  # of a word with one dash only its first letter is named
            name = next((word for word in words if word.startswith(name)), name)
        spelled = {"spot": _OF_SPOT, "lab": {}}.get(words[0], _OF_OTHERS)
        meaning = next((spelled[key] for key in _spellings(name) if key in spelled), None)
        return f"No such option: {name}; {meaning}" if meaning else message
    if words[:1] == ["spot"] and "unexpected extra argument" in message:
        return f"{message}; {_PRICES}"
    for pattern, meaning in _PHRASES:
        message = re.sub(pattern, meaning, message)
    if wrong := re.search(r"'([^']*)' is not one of ('.*')", message):
        meant = difflib.get_close_matches(wrong[1], re.findall("'([^']*)'", wrong[2]), n=1)
        message = message.rstrip(".") + (f"; did you mean {meant[0]}?" if meant else "")
    return message


def _spellings(name: str) -> tuple[str, str]:
    """The option as it is written here, also that of a launcher with one dash before long names."""
    name = name.partition("=")[0].replace("_", "-")
    return name, f"-{name}"
