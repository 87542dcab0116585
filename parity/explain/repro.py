"""The repro folder of a red run: one op, its inputs and what both sides made of them.

``parity diff --repro DIR`` writes it, ``parity replay DIR`` runs that op alone. The folder holds
``repro.json`` (everything that is text, and the digest of every file), ``state.npz`` (the ref's
state before the step), ``inputs.npz`` (the ref's values of the keys that feed the op),
``outputs.npz`` (``ref`` and ``dut``: what each made of them) and ``README.txt``.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from parity import __version__
from parity.dtypes import same_bits
from parity.errors import InputError
from parity.explain.dataflow import feeds_of
from parity.explain.drill import Start
from parity.families import every_field, field_op
from parity.fnv import BASES
from parity.keys import Key
from parity.model.config import PRESETS
from parity.model.model import Model, SyntheticModel, model_digest, synthetic
from parity.model.opening import path_of, weights_of
from parity.protocol import Plan, Step
from parity.runs.run import Run, Side, State
from parity.status import Verdict
from parity.tree import CONTAMINATED, Tree

FORMAT = "parity-repro"
VERSION = 1
RECORD, README = "repro.json", "README.txt"
STATE, INPUTS, OUTPUTS = "state.npz", "inputs.npz", "outputs.npz"
SIDES = ("ref", "dut")
REF_NEEDS = ("state", "capture")
DUT_NEEDS = ("state", "capture", "replay")

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Record:
    """Everything of a repro that is text. ``ref``, ``dut``: dump headers with ``spec``; ``model``:
    label and digest, with name, seed, weights and only of a preset, or with path, weights
    (None: as stored) and seed of a file or folder; ``tokens``: ids at positions 0 .. P,
    the last one fed to the step; ``prompt``: how many tokens the run prefilled; ``positions``:
    rows of the KV cache; ``files``: SHA-256 of each."""

    key: str
    op: str
    verdict: str
    position: int
    prompt: int
    positions: int
    tokens: str
    hash_name: str
    ref: dict[str, str]
    dut: dict[str, str]
    model: dict[str, Any]
    reproduce: str
    versions: dict[str, str]
    files: dict[str, str] = field(default_factory=dict)

    @property
    def fed(self) -> list[int]:
        """``tokens`` as numbers."""
        return [int(token) for token in self.tokens.split(",")]


@dataclass(frozen=True)
class Repro:
    """A repro in memory. ``outputs``: of "ref" and "dut"."""

    record: Record
    state: State
    inputs: dict[Key, np.ndarray]
    outputs: Arrays

    @property
    def key(self) -> Key:
        """The key whose op is replayed."""
        return Key.parse(self.record.key)


# --- writing --------------------------------------------------------------------------------------


def require_new_folder(path: str) -> None:
    """Raise InputError unless a folder can be made at ``path``: ask before a run, not after it."""
    target = Path(os.path.realpath(path))
    if target.exists():
        problem = "is no folder" if not target.is_dir() else ""
        problem = problem or ("is not empty" if any(target.iterdir()) else "")
    else:
        problem = "" if target.parent.is_dir() else "its parent is no folder"
    if not problem and not os.access(target.parent, os.W_OK | os.X_OK):
        problem = "its parent is not writable"
    if problem:
        raise InputError(
            f"--repro {path}: {problem}", "give a new folder in one that can be written"
        )


def save_repro(path: str, tree: Tree, ref: Side, dut: Side, run: Run) -> None:
    """Write the repro of a red run and name it in ``tree``, or say in its notes why there is none.

    The op is that of the first birth, else of the first differing key; after a contaminated start
    also of the decode steps. Raises InputError where the folder cannot be written.
    """
    problem = _lacking(ref, dut)
    if _model_facts(run.model) is None:
        problem = f"{run.model.label} is no preset and no file"
    if tree.verdict is not Verdict.DIVERGED:
        problem = f"the run is {tree.verdict.replace('_', ' ')}"
    if not problem:
        fed = [int(token) for token in tree.run["fed"].split(",") if token]
        start = Start(ref, run, fed, None)
        for key in _candidates(tree):
            made = _capture(key, tree, start, dut)
            if made is not None:
                write_repro(path, made)
                tree.repro = path
                return
        problem = "no op gives other bytes on the ref's inputs"
        if tree.reason == CONTAMINATED and not run.dump_prefill:
            problem += " in the decode steps (--dump-prefill: search the prompt too)"
    tree.notes.append(f"no repro folder: {problem}")


def write_repro(path: str, repro: Repro) -> None:
    """Write the folder, whole or not at all. Raises InputError where it cannot be written."""
    require_new_folder(path)
    target = Path(os.path.realpath(path))
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        partial.mkdir()
        try:
            _fill(partial, repro)
            os.replace(partial, target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise InputError(
            f"--repro {path}: cannot be written: {error.strerror or error}",
            "give a new folder in one that can be written",
        ) from error


def _fill(folder: Path, repro: Repro) -> None:
    np.savez(folder / STATE, **repro.state)  # type: ignore[arg-type]
    inputs = {key.tag: array for key, array in repro.inputs.items()}
    np.savez(folder / INPUTS, **inputs)  # type: ignore[arg-type]
    np.savez(folder / OUTPUTS, **repro.outputs)  # type: ignore[arg-type]
    (folder / README).write_text(_readme(repro.record), encoding="utf-8")
    files = {path.name: _digest(path.read_bytes()) for path in sorted(folder.iterdir())}
    body = {"format": FORMAT, "version": VERSION, **asdict(repro.record), "files": files}
    text = json.dumps({**body, "digest": _body_digest(body)}, indent=1)
    (folder / RECORD).write_text(f"{text}\n", encoding="utf-8")


def _readme(record: Record) -> str:
    """Five lines for whoever is handed the folder; it may lie anywhere by then."""
    lines = (
        f"{record.key}: {record.op}. On the same inputs ref and dut make other bytes.",
        f"ref {record.ref['spec']}, dut {record.dut['spec']}, {record.model['label']}, position "
        f"{record.position}.",
        f"{STATE}: the ref's state before the step. {INPUTS}: what feeds the op. {OUTPUTS}: what "
        "ref and dut made of it.",
        "Run the op alone, in this folder: parity replay .   (status 1: they still differ, 0: they "
        "do not)",
        f"Written by parity {record.versions['parity']}: {record.reproduce}",
    )
    return "".join(f"{line}\n" for line in lines)


def _lacking(ref: Side, dut: Side) -> str:
    for side, needs in ((ref, REF_NEEDS), (dut, DUT_NEEDS)):
        missing = [need for need in needs if not side.has(need)]
        if missing:
            return f"{side.spec} lacks the capability {missing[0]!r}"
    return ""


def _model_facts(model: Model) -> dict[str, Any] | None:
    """How a model is opened again, or None for one that was made in Python."""
    path = path_of(model)
    if path is not None:
        return {"path": str(path), "weights": weights_of(model), "seed": getattr(model, "seed", 0)}
    if not isinstance(model, SyntheticModel) or model.config.name not in PRESETS:
        return None
    config = model.config
    named = {"name": config.name, "seed": model.seed, "weights": config.weights}
    named["only"] = config.only
    return named if synthetic(**named) == model else None  # type: ignore[arg-type]


def _candidates(tree: Tree) -> Iterator[Key]:
    """Keys whose op may differ on equal inputs, the likeliest first."""
    for found in filter(None, (tree, tree.decode)):
        if found.births is not None:
            yield from (Key.parse(birth.key) for birth in found.births.found)
        if found.first is not None:
            yield Key.parse(found.first)


def _capture(key: Key, tree: Tree, ref: Start, dut: Side) -> Repro | None:
    """The op of ``key`` on the ref's inputs, by both sides; None where both make the same."""
    run, token = ref.run, ref.tokens[key.pos]
    variants = {*_variants(tree.ref), *_variants(tree.dut)}
    feeds = feeds_of(run.model.config, key, every_field(run.model.config), variants).keys
    ref.go_to(key.pos)
    state = ref.side.read_state() or {}
    step = ref.feed(key.pos, token, Plan((), tensors=frozenset({key, *feeds})))
    if key not in step.tensors:
        return None
    inputs = {feed: step.tensors[feed] for feed in feeds if feed in step.tensors}
    record = _record(key, tree, ref)
    made = replay_op(dut, Repro(record, state, inputs, {}))
    outputs = {"ref": step.tensors[key], "dut": made.tensors.get(key, step.tensors[key])}
    if same_bits(*outputs.values()):
        return None
    return Repro(record, state, inputs, outputs)


def _variants(header: Mapping[str, str]) -> list[str]:
    return [name for name in header.get("variants", "").split(",") if name not in ("", "none")]


def _record(key: Key, tree: Tree, ref: Start) -> Record:
    run = ref.run
    digest = model_digest(run.model.config, ref.side.weights)
    return Record(
        key=key.tag,
        op=field_op(key.field),
        verdict=str(tree.verdict),
        position=key.pos,
        prompt=run.start,
        positions=run.positions,
        tokens=",".join(map(str, ref.tokens[: key.pos + 1])),
        hash_name=run.hash_name,
        ref=dict(tree.ref),
        dut=dict(tree.dut),
        model={
            **(_model_facts(run.model) or {}),
            "label": run.model.label,
            "digest": f"{digest:016x}",
        },
        reproduce=tree.reproduce,
        versions={
            "parity": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
    )


# --- running the op -------------------------------------------------------------------------------


def replay_op(side: Side, repro: Repro, **plan: Any) -> Step:
    """The step of the repro by ``side``: from the recorded state, the op on the recorded inputs.

    A side without the capability ``replay`` computes the inputs itself. ``plan``: what to report
    beside the value of the key.
    """
    key, record = repro.key, repro.record
    wanted = replace(
        Plan(
            fields=(key.field,),
            places=frozenset({(key.pos, key.layer)}),
            tensors=frozenset({key}),
            basis=BASES[record.hash_name],
            replace=partial(_forced, repro.inputs) if side.has("replay") else None,
        ),
        **plan,
    )
    side.write_state(repro.state)
    token = record.fed[key.pos]
    if key.pos < record.prompt:
        return side.engine.prefill([token], wanted)[0]
    return side.engine.step(token, wanted)


def _forced(
    inputs: Mapping[Key, np.ndarray], key: Key, read: Callable[[], np.ndarray]
) -> np.ndarray | None:
    return inputs.get(key)


# --- reading --------------------------------------------------------------------------------------


def read_repro(folder: Path) -> Repro:
    """Read a folder and hold every file to its digest; InputError names what is wrong."""
    body = _read_body(folder)
    try:
        record = Record(**body)
        length = len(record.fed)
        key = Key.parse(record.key)
        files = dict(record.files)
    except (TypeError, ValueError, InputError) as error:
        raise _damaged(folder / RECORD, str(error)) from error
    arrays = {}
    for name in (STATE, INPUTS, OUTPUTS, README):
        data = _read(folder / name)
        if _digest(data) != files.get(name):
            raise _damaged(folder / name, f"its digest is not the one in {RECORD}")
        if name != README:
            arrays[name] = _arrays(folder / name)
    inputs = {Key.parse(tag): array for tag, array in arrays[INPUTS].items()}
    repro = Repro(record, arrays[STATE], inputs, arrays[OUTPUTS])
    if set(repro.outputs) != set(SIDES) or length != key.pos + 1:
        raise _damaged(folder / RECORD, "it does not describe one step of two sides")
    return repro


def _read_body(folder: Path) -> dict[str, Any]:
    """What ``repro.json`` holds, without what says that it is one."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder", "give a folder that --repro wrote")
    path = folder / RECORD
    try:
        body = json.loads(_read(path))
    except ValueError as error:
        raise _damaged(path, f"not JSON: {error}") from error
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise InputError(f"{path}: not a {FORMAT} file", "give a folder that --repro wrote")
    if body.get("version") != VERSION:
        raise InputError(
            f"{path}: version {body.get('version')} of {FORMAT}, this parity reads {VERSION}",
            "replay it with the parity that wrote it",
        )
    if body.pop("digest", None) != _body_digest(body):
        raise _damaged(path, "it was changed after it was written")
    del body["format"], body["version"]
    return body


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror or error}", "give a folder that --repro wrote"
        ) from error


def _arrays(path: Path) -> Arrays:
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise _damaged(path, str(error)) from error


def _damaged(path: Path, problem: str) -> InputError:
    return InputError(f"{path}: damaged: {problem}", "let parity diff --repro write it again")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _body_digest(body: Mapping[str, Any]) -> str:
    """Of everything in ``repro.json`` but the digest itself."""
    return _digest(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())
