"""Build what is released, ``make dist``: the source distribution, and the wheel made from it, byte for byte the same
whenever, wherever and under whatever umask they are built.

The time in both is SOURCE_DATE_EPOCH (https://reproducible-builds.org/specs/source-date-epoch/), by default that of the
last commit, or in an unpacked source distribution that of its files. setuptools heeds it in wheels only, so the
source distribution is written anew. The build tools are those installed here: no network is needed.
"""

import argparse
import gzip
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def epoch() -> int:
    """Return seconds since 1970 that all files bear."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return int(os.environ["SOURCE_DATE_EPOCH"])
    if (ROOT / ".git").exists():
        command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
        return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return int((ROOT / "CHANGELOG.md").stat().st_mtime)


def normalise(archive: Path, target: Path, seconds: int) -> None:
    """Write a .tar.gz anew: sorted, of one time, of nobody, with modes 644 and 755."""
    with (
        tarfile.open(archive) as source,
        target.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=seconds) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as written,
    ):
        for member in sorted(source.getmembers(), key=lambda member: member.name):
            clean = tarfile.TarInfo(member.name)
            clean.type, clean.size, clean.mtime, clean.linkname = member.type, member.size, seconds, member.linkname
            clean.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            written.addfile(clean, source.extractfile(member) if member.isfile() else None)


def main() -> None:
    """Build both into a folder."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    out, seconds = parser.parse_args().out.resolve(), epoch()
    os.umask(0o022)
    os.environ["SOURCE_DATE_EPOCH"] = str(seconds)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="plink-dist-") as folder:
        (made,) = _build("sdist", ROOT, Path(folder, "sdist"))
        normalise(made, out / made.name, seconds)
        with tarfile.open(out / made.name) as archive:
            archive.extractall(folder, filter="data")
        _build("wheel", Path(folder, made.name.removesuffix(".tar.gz")), out)


def _build(what: str, source: Path, out: Path) -> list[Path]:
    words = [sys.executable, "-P", "-m", "build", "--no-isolation", f"--{what}", "--outdir", str(out), str(source)]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout)
    return list(out.iterdir())


if __name__ == "__main__":
    main()
