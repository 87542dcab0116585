"""What a wheel would put into site-packages: names, typing markers, kernels, entry points.

Run as a program: check_wheel.py WHEEL; prints each problem, ends 1 when there is one.
"""

import sys
import zipfile
from pathlib import Path

PACKAGES = {
    "parity": "parity",
    "parity_cpu": "engines/parity_cpu",
    "parity_cuda": "engines/parity_cuda",
    "parity_torch": "engines/parity_torch",
    "parity_probes": "probes/parity_probes",
    "parity_reports": "reports/parity_reports",
}
DEVICE_SOURCES = {".cu", ".cuh", ".h", ".hpp"}


def wheel_files(wheel: Path) -> set[str]:
    """Return every path stored in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def top_level(files: set[str]) -> set[str]:
    """Return the names that the files would add to site-packages, metadata left out."""
    names = {name.split("/", 1)[0] for name in files}
    return {name for name in names if not name.endswith(".dist-info")}


def source_files(root: Path) -> set[str]:
    """Return the files of the source tree that every wheel must hold, by their wheel paths."""
    found = {f"{package}/py.typed" for package in PACKAGES}
    for package, folder in PACKAGES.items():
        base = root / folder
        for path in base.rglob("*"):
            if path.suffix in DEVICE_SOURCES | {".py"}:
                found.add(f"{package}/{path.relative_to(base).as_posix()}")
    return found


def problems(files: set[str], required: set[str]) -> list[str]:
    """Compare a wheel with what it must hold; one line for each problem, none when it is right.

    Names are compared for equality: a missing package is as bad as an extra one.
    """
    names = top_level(files)
    found = [f"extra top-level name: {name}" for name in sorted(names - set(PACKAGES))]
    found += [f"missing package: {name}" for name in sorted(set(PACKAGES) - names)]
    found += [f"missing file: {name}" for name in sorted(required - files)]
    metadata = {name.split("/", 1)[1] for name in files if ".dist-info/" in name}
    expected = {"METADATA", "entry_points.txt", "licenses/LICENSE"}
    return found + [f"missing metadata: {name}" for name in sorted(expected - metadata)]


def main(arguments: list[str]) -> int:
    """Check the one wheel named on the command line."""
    if len(arguments) != 1:
        print(f"check_wheel: one wheel expected, got {len(arguments)}; run `just wheel`")
        return 2
    wheel = Path(arguments[0])
    files = wheel_files(wheel)
    found = problems(files, source_files(Path(__file__).parents[2]))
    for line in found:
        print(f"{wheel.name}: {line}")
    if not found:
        print(f"{wheel.name}: {len(files)} files, top level {' '.join(sorted(top_level(files)))}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
