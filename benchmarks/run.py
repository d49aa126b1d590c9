"""Run every benchmark, or the ones named: ``python benchmarks/run.py [NAME ...]``, one after the other."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
NOT_BENCHMARKS = {"run", "record", "clouds", "fabric", "labs", "plain_annealing", "prediction_methods", "__init__"}


def main() -> int:
    """Returns the number of benchmarks that failed."""
    names = sorted(path.stem for path in HERE.glob("*.py") if path.stem not in NOT_BENCHMARKS)
    wanted = [name.replace("-", "_") for name in sys.argv[1:]] or names
    unknown = [name for name in wanted if name not in names]
    if unknown:
        print(f"no benchmark {unknown[0]}; there are {', '.join(names)}", file=sys.stderr)
        return 2
    failed = 0
    for name in wanted:
        print(f"== {name}", flush=True)
        failed += (
            subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], cwd=HERE.parent, check=False).returncode != 0
        )
    return failed


if __name__ == "__main__":
    sys.exit(main())
