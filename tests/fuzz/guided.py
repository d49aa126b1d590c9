"""The targets under a fuzzer that is led by coverage: ``python -m tests.fuzz.guided [--seconds S] [TARGET ...]``.

Atheris (libFuzzer; Google, Apache 2.0) sees which branches an input reaches and goes on from those that reach new ones.
What it learnt is kept in ``.fuzz/`` for the next time. An input under which a target does what its contract forbids, or
takes ten seconds or 2 GB, goes to ``tests/fuzz/regressions``, which the ordinary tests replay; the exit code is then 1.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path
from random import Random

ROOT = Path(__file__).parents[2]
ROOMS = ["plink", "probes", "runners", "solvers"]
CORPUS, REGRESSIONS = ROOT / ".fuzz", ROOT / "tests" / "fuzz" / "regressions"
_MAX_BYTES = 1 << 15
_INPUT_S, _MEMORY_MB = 10, 2048
_START_S = 120


def fuzz(name: str, options: list[str]) -> None:
    """In a process of its own, which ends with the first input that is wrong."""
    import atheris

    with atheris.instrument_imports(include=ROOMS, exclude=_compiled(), enable_loader_override=False):
        from tests.fuzz.mutating import mutated
        from tests.fuzz.targets import targets

        target = targets()[name]
        for seed in target.seeds:  # which imports what is imported when it is used
            target(seed)

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        random = Random(seed)
        if random.random() < 0.5:
            return bytes(atheris.Mutate(data, most))
        return mutated(data, random)[:most]

    begin = CORPUS / name
    begin.mkdir(parents=True, exist_ok=True)
    for k, seed in enumerate(target.seeds):
        (begin / f"seed-{k}").write_bytes(seed)
    atheris.Setup([sys.argv[0], str(begin), *options], target, custom_mutator=mutate)
    atheris.Fuzz()


def _compiled() -> list[str]:
    """Modules that Numba compiles: it knows nothing of the calls that would stand in them."""
    return [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sorted((ROOT / "solvers").rglob("*.py"))
        if "numba" in path.read_text()
    ]


def run(name: str, seconds: int) -> str:
    """What was found wrong; empty: nothing."""
    REGRESSIONS.mkdir(exist_ok=True)
    options = [f"-max_total_time={seconds}", f"-max_len={_MAX_BYTES}", f"-timeout={_INPUT_S}",
   f"-rss_limit_mb={_MEMORY_MB}",
               f"-artifact_prefix={REGRESSIONS}/{name}-", "-print_final_stats=1"]  # fmt: skip
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tests.fuzz.guided", "--only", name, "--", *options], cwd=ROOT, check=False,
            capture_output=True, text=True, errors="replace", timeout=seconds + _START_S,
            env={**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"no end {_START_S} s after its time"
    output = done.stderr + done.stdout
    runs = re.search(r"number_of_executed_units: (\d+)", output)
    covered = re.findall(r"cov: (\d+)", output)
    print(f"{name}: {runs[1] if runs else '?'} inputs, {covered[-1] if covered else '?'} branches", flush=True)
    if done.returncode == 0:
        return ""
    errors = re.findall(
        r"^(?:\s*\w*(?:Error|Exception)\b.*|.*(?:ALARM|out-of-memory|timeout).*|=== .* ===.*)$", output, re.MULTILINE
    )
    return "\n".join(errors[:6]) or output[-2000:]


def main() -> int:
    """1 when an input was found under which a target is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=20, help="for each target")
    parser.add_argument("--only", help="run this one in this process, with libFuzzer's options after --")
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    options = parser.parse_args()
    if options.only:
        fuzz(options.only, options.targets)
        return 0
    from tests.fuzz.targets import targets

    wrong = 0
    for name in options.targets or targets():
        error = run(name, options.seconds)
        if error:
            print(f"WRONG {name}:\n{error}", flush=True)
        wrong += bool(error)
    print(f"{wrong} targets are wrong; their inputs are in tests/fuzz/regressions" if wrong else "nothing is wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
