"""``open_gguf``: a GGUF file as a model, checked from end to end before a weight is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from parity.model.checks import stored_kv
from parity.model.config import ModelConfig
from parity.model.file_model import FileModel, Recipe, Source
from parity.model.gguf.names import Part, parts
from parity.model.gguf.reading import GgufFile, StoredTensor, read_gguf
from parity.model.gguf.settings import OTHER_MODEL, architecture_of, config_of
from parity.model.gguf.storage import q4_nibbles, q4_scales, widen
from parity.model.model import weight_shapes
from parity.model.rope import inv_freq

_NAMED = 5  # names that a message lists
_LEFT_OUT = ("v.", "mm.")  # vision tensors


def open_gguf(path: Path) -> FileModel:
    """The model in the file; no tensor is read yet.

    Raises InputError, naming the file and the field or tensor, for a file that is cut, damaged or
    not supported, and where a tensor is missing, has another shape than the configuration says, or
    belongs to no model of the architecture; NotRunError without the ``gguf`` package.
    """
    file = read_gguf(path)
    architecture = architecture_of(file)
    config = config_of(file, architecture)
    config = replace(config, tied="output.weight" not in file.tensors)
    placed = parts(architecture, config, frozenset(file.tensors))
    used = _used(file, placed)
    _check_extra(file, used, config.layers)
    recipes = _recipes(file, config, placed)
    config = replace(config, kv_storage=stored_kv(config.family, recipes))
    return FileModel(config, path.name, recipes, _source(file, used))


def _used(file: GgufFile, placed: dict[str, Part]) -> list[StoredTensor]:
    """The tensors that are read, each once; refuses a missing one and one of another shape."""
    wanted = {part.tensor: part for part in placed.values()}
    missing = [name for name in wanted if name not in file.tensors]
    if missing:
        file.refuse(f"{_listed(missing)} missing")
    for name, part in wanted.items():
        found = file.tensors[name].shape
        if _trimmed(found) != _trimmed(part.shape):
            file.refuse(
                f"tensor {name} is {list(found)}, the configuration needs {list(part.shape)}"
            )
    return [file.tensors[name] for name in wanted]


def _trimmed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without leading ones, which the format does not keep."""
    start = next((at for at, size in enumerate(shape) if size != 1), len(shape))
    return shape[start:]


def _check_extra(file: GgufFile, used: list[StoredTensor], layers: int) -> None:
    """Refuse tensors that nothing reads; predicting further tokens and vision are left out."""
    extra = set(file.tensors) - {tensor.name for tensor in used}
    left = [name for name in file.tensors if name in extra and not _left_out(name, layers)]
    biased = [name for name in left if name.endswith(".bias") and ".attn_" in name]
    if biased:
        file.refuse(f"tensor {biased[0]}: attention bias is not supported", OTHER_MODEL)
    if left:
        file.refuse(f"{_listed(left)} unknown", OTHER_MODEL)


def _left_out(name: str, layers: int) -> bool:
    number = name.removeprefix("blk.").partition(".")[0]
    ahead = name.startswith("blk.") and number.isdecimal() and int(number) >= layers
    return ahead or name.startswith(_LEFT_OUT)


def _listed(names: list[str]) -> str:
    """``tensor a is`` or ``tensors a, b, ... and 3 more are``."""
    if len(names) == 1:
        return f"tensor {names[0]} is"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"tensors {', '.join(names[:_NAMED])}{more} are"


def _source(file: GgufFile, used: list[StoredTensor]) -> Source:
    kinds = Counter(tensor.kind for tensor in used)
    stored = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return Source(file.path, "gguf", sum(tensor.size for tensor in used), stored)


def _recipes(file: GgufFile, config: ModelConfig, placed: dict[str, Part]) -> dict[str, Recipe]:
    """How each tensor is made, by our name, in the order of the digest."""
    shapes = weight_shapes(config)
    made: dict[str, Recipe] = {}
    for name, part in placed.items():
        stored = file.tensors[part.tensor]
        take = partial(_taken, file, stored, part)
        shape = shapes[name.replace(".rates", ".a_log")].shape
        if stored.kind == "Q4_0" and _keeps_q4(name, config):
            made[f"{name}.d"] = partial(_shaped, q4_scales, take, shape[:-1])
            made[f"{name}.qs"] = partial(_shaped, q4_nibbles, take, shape[:-1])
        else:
            made[name] = partial(_shaped, partial(widen, stored.kind), take, shape[:-1])
        _check_order(file, stored, part)
    made["inv_freq"] = partial(inv_freq, config.theta, config.rot_dim)
    return made


def _keeps_q4(name: str, config: ModelConfig) -> bool:
    """Whether a weight may be held as Q4_0: contract 1.0 has in_proj_a and in_proj_b as f32."""
    own = name.rpartition(".")[2]
    found = weight_shapes(config).get(name)
    return found is not None and found.matrix and own not in ("a_proj", "b_proj")


def _check_order(file: GgufFile, stored: StoredTensor, part: Part) -> None:
    """Blocks are moved whole: refuse an order of columns, or of a vector, that would cut them."""
    one = part.width if part.heads is not None else 1
    moved = part.heads is not None or (part.rows is not None and len(part.shape) == 1)
    if moved and one % stored.block[0]:
        file.refuse(
            f"tensor {stored.name} is {stored.kind}: its columns move in runs of {one}, no "
            f"multiple of {stored.block[0]}",
            "convert the model to F16 or F32",
        )


def _taken(file: GgufFile, stored: StoredTensor, part: Part) -> np.ndarray:
    """The blocks of one weight in our order; a view where that is the file's."""
    blocks = file.blocks(stored)
    count, size = blocks.shape[-2:]
    blocks = blocks.reshape(*part.shape[:-1], count, size)
    if part.rows is not None:
        blocks = np.take(blocks, part.rows(), axis=max(0, len(part.shape) - 2))
    if part.heads is not None:
        heads = part.heads()
        runs = blocks.reshape(*part.shape[:-1], len(heads), -1, size)
        blocks = np.take(runs, heads, axis=-3).reshape(blocks.shape)
    return blocks


def _shaped(
    convert: Callable[[np.ndarray], np.ndarray],
    take: Callable[[], np.ndarray],
    rows: tuple[int, ...],
) -> np.ndarray:
    """The converted blocks in our shape: the format does not keep leading ones."""
    return convert(take()).reshape(*rows, -1)
