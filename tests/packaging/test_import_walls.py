"""Who may import whom: the core imports no plug-in, plug-ins do not import each other."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEVICE = {"cupy", "cupy_backends", "cuda"}
LIBRARY = {"torch", "transformers"}
ENGINES = {"parity_cpu", "parity_cuda", "parity_torch"}
OTHERS = {"parity_probes", "parity_reports"}
PRESENT = {"pandas", "rich", "jinja2"}
# Package folder -> what its modules may not import: at module level, in a function or for types.
FORBIDDEN = {
    "parity": {
        *ENGINES,
        *OTHERS,
        "numba",
        *DEVICE,
        *LIBRARY,
        *PRESENT,
    },
    "engines/parity_cpu": {*ENGINES - {"parity_cpu"}, *OTHERS, *DEVICE, *LIBRARY, *PRESENT},
    "engines/parity_cuda": {*ENGINES - {"parity_cuda"}, *OTHERS, *LIBRARY, *PRESENT},
    "engines/parity_torch": {*ENGINES - {"parity_torch"}, *OTHERS, *DEVICE, *PRESENT},
    "probes/parity_probes": {*ENGINES, "parity_reports", *DEVICE, *LIBRARY, *PRESENT},
    "reports/parity_reports": {*ENGINES, "parity_probes", "numba", *DEVICE, *LIBRARY},
}
# What a module may name in its types alone: the public API gives data frames.
TYPED = {"parity/divergence.py": {"pandas"}}


def imported_names(source: str, *, at_run_time: bool = False) -> set[str]:
    """Return the top-level names of every absolute import in a module, wherever it stands.

    `importlib.import_module("name")` and `__import__("name")` count as imports. `at_run_time`:
    without those under `if TYPE_CHECKING:`.
    """
    names: set[str] = set()
    tree = ast.parse(source)
    for node in ast.walk(_WithoutTypes().visit(tree) if at_run_time else tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Call) and _callee(node) in {"import_module", "__import__"}:
            names |= {str(a.value) for a in node.args if isinstance(a, ast.Constant)}
    return {name.split(".", 1)[0] for name in names}


class _WithoutTypes(ast.NodeTransformer):
    """Leave out what only a type checker sees."""

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return node.orelse
        return self.generic_visit(node)


def _callee(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def breaches(root: Path, folder: str) -> list[str]:
    """Return one line for each forbidden import in the package at `root`/`folder`."""
    modules = sorted((root / folder).rglob("*.py"))
    assert modules, f"no module under {folder}"
    return [
        f"{path.relative_to(root)} imports {name}"
        for path in modules
        for name in sorted(_imported(path, root) & FORBIDDEN[folder])
    ]


def _imported(path: Path, root: Path) -> set[str]:
    source = path.read_text(encoding="utf-8")
    typed = TYPED.get(path.relative_to(root).as_posix(), set())
    return imported_names(source) - (typed - imported_names(source, at_run_time=True))


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_package_stays_behind_its_wall(folder: str) -> None:
    assert breaches(ROOT, folder) == []


@pytest.mark.parametrize(
    "statement",
    [
        "import numba",
        "import numba.core as core",
        "from numba import njit",
        "def late():\n    from numba.core import types",
        "import typing\nif typing.TYPE_CHECKING:\n    import numba",
        "import importlib\nimportlib.import_module('numba.core')",
        "from importlib import import_module\nimport_module('numba')",
        "__import__('numba')",
    ],
    ids=["plain", "dotted", "from", "function", "types", "importlib", "import_module", "dunder"],
)
def test_red_planted_import(tmp_path: Path, statement: str) -> None:
    (tmp_path / "parity" / "deep").mkdir(parents=True)
    (tmp_path / "parity" / "deep" / "planted.py").write_text(statement + "\n")
    assert breaches(tmp_path, "parity") == ["parity/deep/planted.py imports numba"]


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_red_every_forbidden_name_is_seen(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir(parents=True)
    names = sorted(FORBIDDEN[folder])
    (tmp_path / folder / "planted.py").write_text("".join(f"import {n}\n" for n in names))
    assert breaches(tmp_path, folder) == [f"{folder}/planted.py imports {n}" for n in names]


UNDER_TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pandas\n"


@pytest.mark.parametrize(
    ("name", "source", "seen"),
    [
        ("divergence.py", UNDER_TYPES, False),
        ("api.py", UNDER_TYPES, True),
        ("divergence.py", UNDER_TYPES.replace("pandas", "rich"), True),
        ("divergence.py", f"{UNDER_TYPES}else:\n    import pandas\n", True),
        ("divergence.py", f"{UNDER_TYPES}def late():\n    import pandas\n", True),
        ("divergence.py", UNDER_TYPES.replace("if TYPE_CHECKING", "if True"), True),
    ],
    ids=["allowed", "other module", "other name", "else", "function", "other condition"],
)
def test_red_types_are_no_door(tmp_path: Path, name: str, source: str, seen: bool) -> None:
    (tmp_path / "parity").mkdir()
    (tmp_path / "parity" / name).write_text(source)
    assert bool(breaches(tmp_path, "parity")) == seen


def test_relative_import_and_word_in_text_are_no_breach() -> None:
    assert imported_names('"""import numba"""\nfrom .numba import x\nfrom . import rich\n') == set()
