"""Install a wheel into a fresh environment outside the repository and use it there.

Beside it stand the toy engine, built as a wheel from its own folder as its author would, and
pytest, with the plug-in that comes with ours. Run as a program: check_installed.py WHEEL. Needs the
package index, so CI runs it and pytest does not. Ends 1 at the first command that does not end 0.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

TOY = Path(__file__).parents[1] / "toy_engine"
COMMANDS = (
    *(("--version",), ("engines",), ("diff", "-q")),
    *(("conformance", "toy"), ("diff", "--ref", "toy", "--dut", "toy", "-q")),
)
# A test as a user has it: accepted once, then held to it.
BASELINE = """\
import numpy
from parity.testing import assert_bits_equal

def test_baseline(parity_baseline):
    array = numpy.arange(4, dtype=numpy.float32)
    assert_bits_equal(array, array.copy())
    parity_baseline.check(array)
"""
WHERE = (
    "import parity, parity_cpu, parity_cuda, parity_torch, parity_probes, parity_reports as r\n"
    "print(r.__file__)"
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
    python = str(bin_folder / "python")
    wheels = [str(wheel), str(build_toy(folder)), "pytest"]
    run([python, "-m", "pip", "install", "--quiet", *wheels], folder)
    origin = run([python, "-c", WHERE], folder).strip()
    if not Path(origin).resolve().is_relative_to(folder.resolve()):
        print(f"check_installed: {origin} was imported, which is not the installed wheel")
        raise SystemExit(1)
    for arguments in COMMANDS:
        run([str(bin_folder / "parity"), *arguments], folder)
    (folder / "test_user.py").write_text(BASELINE)
    for options in (["--parity-update"], []):
        run([python, "-m", "pytest", "-q", "-W", "error", *options, "test_user.py"], folder)


def wheel_files(wheel: Path) -> list[str]:
    """Return every path stored in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def build_toy(folder: Path) -> Path:
    """Build the toy engine's wheel into `folder` from a copy of its source, and return it.

    Raises SystemExit(1) when it holds anything but its package and its metadata.
    """
    source = folder / "toy_engine"
    shutil.copytree(TOY, source)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation"]
    run([*command, "--outdir", str(folder / "wheels"), str(source)], folder)
    [wheel] = (folder / "wheels").glob("parity_toy_engine-*.whl")
    names = sorted({name.split("/")[0].split("-")[0] for name in wheel_files(wheel)})
    if names != ["parity_toy", "parity_toy_engine"]:
        print(f"check_installed: {wheel.name} holds {', '.join(names)}")
        raise SystemExit(1)
    return wheel


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
