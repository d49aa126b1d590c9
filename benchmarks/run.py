"""Run benchmarks one after the other: ``python benchmarks/run.py [NAME ...] [--WORDS FOR THEM]``.

Without a name: those that do the theses' figures again; ``others``: the rest; ``all``: every one; ``list``: tell.
One that fails, or misses a bar, stops none of the others; the exit code is then 1.
"""

import itertools
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # run as a script, from anywhere

from benchmarks.catalogue import ENTRIES, NAMES  # noqa: E402


def chosen(words: list[str]) -> list[str]:
    """Return the benchmarks that the words name, each once.

    :raises KeyError: for a name that none has.
    """
    sets = {
        "theses": [entry.name for entry in ENTRIES if entry.theses],
        "others": [entry.name for entry in ENTRIES if not entry.theses],
        "all": list(NAMES),
    }
    modules_by_name = sets | {name: [name] for name in NAMES}
    return list(dict.fromkeys(itertools.chain.from_iterable(modules_by_name[word.replace("-", "_")] for word in words)))


def listed() -> str:
    """Return a line for each benchmark, and what a set of them takes."""
    lines = [
        f"{entry.name:<18}{entry.minutes:>5g} min  {'theses' if entry.theses else '':<8}{entry.shows}"
        for entry in ENTRIES
    ]
    total = {kind: sum(entry.minutes for entry in ENTRIES if entry.theses == kind) for kind in (True, False)}
    return "\n".join([*lines, f"theses: {total[True]:g} min, others: {total[False]:g} min"])


def main() -> int:
    """Return the exit code: 1 when one failed, 2 for an unknown name."""
    words = list(itertools.takewhile(lambda word: not word.startswith("--"), sys.argv[1:]))
    passed_on = sys.argv[1 + len(words) :]
    if words == ["list"]:
        print(listed())
        return 0
    try:
        wanted = chosen(words or ["theses"])
    except KeyError as error:
        print(f"no benchmark {error.args[0]}; there are {', '.join(NAMES)}, theses, others, all", file=sys.stderr)
        return 2
    ended = []
    for name in wanted:
        print(f"== {name}", flush=True)
        began = time.monotonic()
        done = subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *passed_on], cwd=ROOT, check=False)
        what = "done" if done.returncode == 0 else "failed, or a bar was missed"
        ended.append((f"{name:<18}{(time.monotonic() - began) / 60:>6.1f} min  {what}", done.returncode))
    print("\n".join(["== all", *(line for line, _ in ended)]))
    return int(any(code for _, code in ended))


if __name__ == "__main__":
    sys.exit(main())
