"""Install a wheel into a fresh environment outside the repository and use it there.

Run as a program: check_installed.py WHEEL. Needs the package index, so CI runs it and pytest does
not. Ends 1 at the first command that does not end 0.
"""

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

COMMANDS = (("--version",), ("engines",), ("diff", "-q"))
WHERE = (
    "import parity, parity_cpu, parity_cuda, parity_probes, parity_reports as r; print(r.__file__)"
)


def clean_environment() -> dict[str, str]:
    """Return the environment without what could lead an import back to the repository."""
    return {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}


def run(command: list[str], cwd: Path) -> str:
    """Run a command in `cwd`, print it with its output, and return its output.

    Raises SystemExit(1) when it does not end 0.
    """
    print(f"$ {' '.join([Path(command[0]).name, *command[1:]])}", flush=True)
    done = subprocess.run(
        command, cwd=cwd, env=clean_environment(), capture_output=True, text=True, check=False
    )
    print(done.stdout, end="", flush=True)
    if done.returncode != 0:
        print(f"{done.stderr}\ncheck_installed: that ended {done.returncode}, 0 expected")
        raise SystemExit(1)
    return done.stdout


def check(wheel: Path, folder: Path) -> None:
    """Install `wheel` into `folder`/venv and run the commands from `folder`."""
    venv.create(folder / "venv", with_pip=True)
    bin_folder = folder / "venv" / "bin"
    run([str(bin_folder / "python"), "-m", "pip", "install", "--quiet", str(wheel)], folder)
    origin = run([str(bin_folder / "python"), "-c", WHERE], folder).strip()
    if not Path(origin).resolve().is_relative_to(folder.resolve()):
        print(f"check_installed: {origin} was imported, which is not the installed wheel")
        raise SystemExit(1)
    for arguments in COMMANDS:
        run([str(bin_folder / "parity"), *arguments], folder)


def main(arguments: list[str]) -> int:
    """Check the one wheel named on the command line."""
    if len(arguments) != 1:
        print(f"check_installed: one wheel expected, got {len(arguments)}; run `just wheel`")
        return 2
    with tempfile.TemporaryDirectory() as name:
        check(Path(arguments[0]).resolve(), Path(name))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
