"""scripts/setup.sh: installs when it must, and says in one line why it cannot.

A stand-in for Python logs what it is asked to do, so nothing is installed.
"""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "setup.sh"
TOOLS = ("sh", "dirname", "cksum", "cat", "cp", "mkdir")
GOOD_PYTHON = """\
#!/bin/sh
echo "$*" >> "$LOG"
case "$*" in
*ziglang*) exit 1 ;;
"-m venv --clear "*) mkdir -p "$4/bin"; cp "$0" "$4/bin/python" ;;
*"-m pip"*) for name in parity just; do
    printf '#!/bin/sh\\necho "%s $*"\\n' $name > "${0%/*}/$name"; /bin/chmod +x "${0%/*}/$name"
done ;;
esac
"""
OLD_PYTHON = """\
#!/bin/sh
[ "$1" = --version ] && echo "Python 3.9.2"
[ "$1" != -c ]
"""
NO_VENV_PYTHON = """\
#!/bin/sh
[ "$2" != venv ]
"""


@dataclass(frozen=True)
class Machine:
    """A folder that plays a bare machine: a clone, and a PATH with chosen tools."""

    folder: Path

    @property
    def clone(self) -> Path:
        """The repository on this machine."""
        return self.folder / "clone"

    def tool(self, name: str, text: str) -> None:
        """Put a program on PATH."""
        path = self.folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def setup(self, *arguments: str) -> tuple[int, str, str]:
        """Run setup.sh; return exit status, stdout and stderr."""
        done = subprocess.run(
            ["/bin/sh", str(self.clone / "scripts" / "setup.sh"), *arguments],
            env={"PATH": str(self.folder / "bin"), "LOG": str(self.folder / "log")},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def installs(self) -> list[str]:
        """Return what pip was asked to install, in order."""
        lines = (self.folder / "log").read_text().splitlines()
        return [line.split()[-1] for line in lines if line.startswith("-m pip")]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a machine with Python and g++."""
    made = Machine(tmp_path)
    (made.clone / "scripts").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    shutil.copy(SCRIPT, made.clone / "scripts" / "setup.sh")
    (made.clone / "pyproject.toml").write_text("[project]\n")
    for name in TOOLS:
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    made.tool("python3", GOOD_PYTHON)
    made.tool("g++", "#!/bin/sh\n")
    return made


def test_diff_runs_parity_with_its_arguments(machine: Machine) -> None:
    assert machine.setup("diff", "--n", "2")[:2] == (0, "parity diff --n 2\n")
    assert machine.installs() == ["."]


def test_test_runs_the_recipe(machine: Machine) -> None:
    justfile = machine.clone / "Justfile"
    assert machine.setup("test", "-x")[:2] == (0, f"just --justfile {justfile} test -x\n")
    assert machine.installs() == [".[dev]"]


def test_second_call_installs_nothing_and_says_nothing(machine: Machine) -> None:
    machine.setup("dev")
    assert machine.setup("dev") == (0, "", "")
    assert machine.setup("diff")[2] == ""
    assert machine.installs() == [".[dev]"]


def test_tests_need_more_than_diff(machine: Machine) -> None:
    machine.setup("diff")
    machine.setup("test")
    assert machine.installs() == [".", ".[dev]"]


def test_changed_pyproject_is_installed_again(machine: Machine) -> None:
    machine.setup("dev")
    (machine.clone / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    machine.setup("dev")
    assert machine.installs() == [".[dev]", ".[dev]"]


def test_moved_clone_is_installed_again(machine: Machine) -> None:
    machine.setup("dev")
    moved = Machine(machine.folder / "moved")
    moved.folder.mkdir()
    machine.clone.rename(moved.clone)
    for name in ("bin", "log"):
        (moved.folder / name).symlink_to(machine.folder / name)
    moved.setup("dev")
    assert moved.installs() == [".[dev]", ".[dev]"]


def test_red_no_compiler(machine: Machine) -> None:
    (machine.folder / "bin" / "g++").unlink()
    for job in ("diff", "test"):
        status, out, err = machine.setup(job)
        assert (status, out) == (2, "")
        assert err.startswith("setup: no C++ compiler (g++ or clang++) on PATH")
        assert err.count("\n") == 1


def test_clang_is_a_compiler(machine: Machine) -> None:
    (machine.folder / "bin" / "g++").rename(machine.folder / "bin" / "clang++")
    assert machine.setup("diff")[0] == 0


def test_red_old_python(machine: Machine) -> None:
    machine.tool("python3", OLD_PYTHON)
    status, out, err = machine.setup("diff")
    assert (status, out) == (2, "")
    assert err.startswith("setup: Python 3.11 or newer is needed, found Python 3.9.2;")
    assert err.count("\n") == 1


def test_newer_python_beside_an_old_one_is_found(machine: Machine) -> None:
    machine.tool("python3", OLD_PYTHON)
    machine.tool("python3.12", GOOD_PYTHON)
    assert machine.setup("diff")[0] == 0


def test_red_no_python(machine: Machine) -> None:
    (machine.folder / "bin" / "python3").unlink()
    status, _, err = machine.setup("dev")
    assert status == 2
    assert err.startswith("setup: Python 3.11 or newer is needed, found no python3;")


def test_red_no_venv_module(machine: Machine) -> None:
    machine.tool("python3", NO_VENV_PYTHON)
    status, _, err = machine.setup("dev")
    assert status == 2
    assert "apt-get install python3-venv" in err


@pytest.mark.parametrize("arguments", [(), ("build",)], ids=["no job", "unknown job"])
def test_red_job(machine: Machine, arguments: tuple[str, ...]) -> None:
    status, _, err = machine.setup(*arguments)
    assert status == 2
    assert err.startswith("setup: ")
    assert err.count("\n") == 1
