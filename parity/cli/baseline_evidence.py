"""What a result is held to before ``parity baseline`` accepts it: a green comparison of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parity.errors import InputError
from parity.progress import Progress
from parity.registry import ENGINES, plugins
from parity.spec import EngineSpec, Runnable, Spec, parse_spec

if TYPE_CHECKING:
    from parity.dump import Dump
    from parity.runs.run import Run
    from parity.tree import Tree

PROGRAMS = ("exec:", "exec@")  # how the spec of one begins


@dataclass(frozen=True)
class Trust:
    """What a result is held to before it is accepted. ``ref``: the side it must be the same as;
    ``report``: a file of --json that shows it; ``tensors``: what to keep; ``runs``: of an engine.
    """

    ref: str | None
    report: Path | None
    tensors: Sequence[str]
    runs: int

    def __post_init__(self) -> None:
        if self.ref is not None and self.report is not None:
            raise InputError("--ref with --from: one of them shows it", "leave one out")


def evidence_of(
    spec: Spec,
    dump: Dump,
    run: Run | None,
    trust: Trust,
    seed: int,
    progress: Progress,
) -> dict[str, Any] | None:
    """What shows that ``dump`` is right, None where nothing was asked for; InputError where it
    shows that it is not."""
    if trust.report is not None:
        return _reported(trust.report, dump)
    if trust.ref is None:
        return None
    from parity.baseline import require_green
    from parity.runs.engine_diff import Ask
    from parity.runs.side_diff import diff_sides

    ref = parse_spec(trust.ref, plugins(ENGINES))
    if run is None:
        problem = f"{spec.text}: its header names no run that the options can make again"
        raise InputError(problem, "leave out --ref, or give --from a green report of it")
    tree = diff_sides((ref, spec), run, Ask(seed=seed), progress, bisect=False)
    require_green(tree, f"{spec.text} against {trust.ref}")
    _require_held(tree, dump, f"--ref {trust.ref}")
    return {**_green(tree), "ref": trust.ref}


def _reported(path: Path, dump: Dump) -> dict[str, Any]:
    """A saved comparison in which the dut was ``dump``."""
    from parity.baseline import require_green
    from parity.tree import Tree

    try:
        data = path.read_bytes()
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--from {path}: cannot be read", "give a file of --json") from error
    tree = Tree.from_json(text, str(path))
    require_green(tree, f"--from {path}")
    _require_held(tree, dump, f"--from {path}")
    digest = hashlib.sha256(data).hexdigest()
    return {**_green(tree), "ref": tree.ref.get("spec", ""), "report": digest}


def _green(tree: Tree) -> dict[str, Any]:
    states = "equal before and after" if tree.states else "not compared"
    return {
        "verdict": str(tree.verdict),
        "level": str(tree.level),
        "keys": tree.counts.same,
        "states": states,
        "control": tree.control.key if tree.control else "",
        "ref_header": tree.ref,
    }


def _require_held(tree: Tree, dump: Dump, where: str) -> None:
    """Raise InputError unless the dut of a green tree is ``dump``, and its ref another engine."""
    told = {(row.segment, row.key): row.dut for row in tree.keys}
    for segment, entries in dump.segments.items():
        for entry in entries:
            if told.get((segment, entry.key.tag), "") != entry.value_text():
                raise InputError(
                    f"{where}: it does not show {entry.key.tag} as it is to be accepted",
                    "compare the very run that is to be accepted, of up to 100,000 keys",
                )
    if _same_side(tree.ref, tree.dut):
        raise _same_engine(where)


def _same_side(ref: Mapping[str, str], dut: Mapping[str, str]) -> bool:
    """Whether two headers are of one engine, tier and set of variants; of programs, each of which
    has one name for all it can do, whether they are one command."""
    commands = [header.get("spec", "") for header in (ref, dut)]
    if any(command.startswith(PROGRAMS) for command in commands):
        return commands[0] == commands[1]
    return all(ref.get(name) == dut.get(name) for name in ("engine", "tier", "variants"))


def require_other_engine(dut: Runnable, ref: str | None) -> None:
    """Refuse a ref that is the dut itself before anything is run."""
    from parity.runs.sides import chosen_variants

    if ref is None:
        return
    spec = parse_spec(ref, plugins(ENGINES))
    same = spec == dut
    if isinstance(spec, EngineSpec) and isinstance(dut, EngineSpec):
        same = chosen_variants(spec) == chosen_variants(dut)
    if same:
        raise _same_engine(f"--ref {ref}")


def _same_engine(where: str) -> InputError:
    return InputError(
        f"{where}: the same engine, tier and variants: it shows nothing", "name another engine"
    )
