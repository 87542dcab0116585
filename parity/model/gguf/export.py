"""``export_gguf``: any model as a GGUF file that this project and llama.cpp load."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from parity.dumps.writer import name_beside, named_errors, publish
from parity.elementary.functions import open_implementation
from parity.errors import InputError, NotRunError
from parity.model.config import ModelConfig
from parity.model.file_model import MISSING_PACKAGE
from parity.model.gguf.names import FAMILIES, WITH_EXPERTS, Part, parts
from parity.model.gguf.settings import CONV_TAPS
from parity.model.gguf.storage import q4_blocks
from parity.model.model import Model
from parity.model.tokenizer import PADDING

if TYPE_CHECKING:
    from gguf import GGUFWriter

_FAMILY = {
    ("dense", False): "qwen3",
    ("moe", True): "qwen3moe",
    ("hybrid", False): "qwen35",
    ("hybrid", True): "qwen3next",
}


def export_gguf(model: Model, path: Path, architecture: str = "") -> str:
    """Write ``model`` to the new file ``path``, whole or not at all; returns the architecture.

    Matrices stay Q4_0 or f32 as the model holds them. ``architecture``: "" for the one of the
    model's family. Raises InputError where a file of that name exists, where it cannot be written,
    and for a model that the format cannot hold; NotRunError without the ``gguf`` package.
    """
    config = model.config
    architecture = architecture or _architecture(config)
    _check_fits(config, architecture)
    real = Path(os.path.realpath(path))
    taken = InputError(f"{path}: exists already", "choose another name")
    if real.exists():
        raise taken
    beside = name_beside(real)
    try:
        with named_errors(path):
            _write(model, architecture, beside)
            try:
                publish(beside, real, force=False)
            except FileExistsError:
                raise taken from None
    finally:
        with suppress(FileNotFoundError):
            beside.unlink()
    return architecture


def _architecture(config: ModelConfig) -> str:
    found = _FAMILY.get((config.family, config.experts > 0))
    if found is None:
        raise InputError(
            f"no GGUF architecture for the family {config.family} of {config.name}",
            f"there are: {', '.join(FAMILIES)}",
        )
    return found


def _check_fits(config: ModelConfig, architecture: str) -> None:
    """Refuse what no key of the format says."""
    expert, hybrid = architecture in WITH_EXPERTS, FAMILIES[architecture] == "hybrid"
    problem = ""
    if FAMILIES[architecture] != config.family or expert != (config.experts > 0):
        problem = f"{config.name} is no {architecture} model"
    elif config.dense_layers:
        problem = f"{architecture} has experts in every layer, {config.name} dense ones too"
    elif (config.shared_inter > 0) != (hybrid and expert):
        problem = f"{architecture} and {config.name} differ in whether there is a shared expert"
    elif expert and not config.norm_topk_prob:
        problem = f"{architecture} scales the chosen experts to a sum of 1, {config.name} does not"
    elif config.rot and not hybrid:
        problem = f"{architecture} rotates whole heads, {config.name} {config.rot} elements"
    if problem:
        raise InputError(f"GGUF: {problem}", "export another model")


def _write(model: Model, architecture: str, path: Path) -> None:
    try:
        from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType
    except ImportError as error:
        raise NotRunError("writing GGUF needs the gguf package", MISSING_PACKAGE) from error
    writer = GGUFWriter(path, architecture)
    try:
        _add_values(writer, model.config, architecture)
        tensors = _tensors(model, architecture)
        q4 = any(tensor.q4 for tensor in tensors.values())
        writer.add_file_type(LlamaFileType.MOSTLY_Q4_0 if q4 else LlamaFileType.ALL_F32)
        kinds = {False: GGMLQuantizationType.F32, True: GGMLQuantizationType.Q4_0}
        for name, tensor in tensors.items():
            kind, floats = kinds[tensor.q4], np.dtype(np.float32)
            writer.add_tensor_info(name, tensor.shape, floats, tensor.size, kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor in tensors.values():
            _write_tensor(writer, tensor.make())
    finally:
        writer.close()


def _write_tensor(writer: GGUFWriter, data: np.ndarray) -> None:
    try:
        writer.write_tensor_data(data)
    except OSError as error:
        if error.strerror is not None:
            raise
        # NumPy's, of a file that did not take every byte: it does not tell why.
        raise OSError(errno.EIO, "not every byte was taken; the disk may be full") from error


def _add_values(writer: GGUFWriter, config: ModelConfig, architecture: str) -> None:
    """The keys that llama.cpp needs to load the file, and those that say what it computes."""
    writer.add_type("model")
    writer.add_name(config.name)
    writer.add_quantization_version(2)
    writer.add_block_count(config.layers)
    writer.add_context_length(config.context)
    writer.add_embedding_length(config.hidden)
    writer.add_head_count(config.n_q)
    writer.add_head_count_kv(config.n_kv)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.eps)
    writer.add_rope_freq_base(config.theta)
    writer.add_rope_dimension_count(config.rot_dim)
    writer.add_tokenizer_model("none")
    writer.add_vocab_size(config.vocab)
    if config.real_ids:
        padded = config.vocab - config.real_ids
        writer.add_token_types([1] * config.real_ids + [PADDING] * padded)
    if config.experts:
        writer.add_expert_count(config.experts)
        writer.add_expert_used_count(config.top_k)
        writer.add_expert_feed_forward_length(config.inter)
    else:
        writer.add_feed_forward_length(config.inter)
    if config.shared_inter:
        writer.add_expert_shared_feed_forward_length(config.shared_inter)
    if config.family == "hybrid":
        _add_recurrent(writer, config, architecture)


def _add_recurrent(writer: GGUFWriter, config: ModelConfig, architecture: str) -> None:
    key_heads, value_heads, key_width, value_width = config.gdn
    writer.add_ssm_conv_kernel(CONV_TAPS)
    writer.add_ssm_group_count(key_heads)
    writer.add_ssm_time_step_rank(value_heads)
    writer.add_ssm_state_size(key_width)
    writer.add_ssm_inner_size(value_heads * value_width)
    writer.add_full_attention_interval(config.interval)
    recurrent = [config.is_gdn(layer) for layer in range(config.layers)]
    writer.add_array(f"{architecture}.attention.recurrent_layers", recurrent)
    if architecture != "qwen3next":
        pairs = config.rot_dim // 2
        # Positions of text are equal in the first three: every pair must belong to one of them.
        writer.add_rope_dimension_sections([(pairs + 2 - at) // 3 for at in range(3)] + [0])


@dataclass(frozen=True)
class _Stored:
    """One tensor of the file: Q4_0 or F32, and how its blocks are made."""

    shape: tuple[int, ...]
    q4: bool
    make: Callable[[], np.ndarray]

    @property
    def size(self) -> int:
        """Bytes."""
        return prod(self.shape) * 18 // 32 if self.q4 else prod(self.shape) * 4


def _tensors(model: Model, architecture: str) -> dict[str, _Stored]:
    """Shape, whether it is Q4_0, and how it is made, by the file's name, in our order."""
    placed = parts(architecture, model.config, ())
    shared: dict[str, list[str]] = {}
    for name, part in placed.items():
        shared.setdefault(part.tensor, []).append(name)
    names = frozenset(model.names())
    return {
        tensor: _stored(model, {name: placed[name] for name in ours}, names)
        for tensor, ours in shared.items()
    }


def _stored(model: Model, ours: dict[str, Part], names: frozenset[str]) -> _Stored:
    """One tensor of the file, of one weight of ours or of several that share it."""
    shape = next(iter(ours.values())).shape
    q4 = all(f"{name}.qs" in names for name in ours)
    width = (shape[-1] // 32, 18) if q4 else (shape[-1], 4)

    def make() -> np.ndarray:
        made = np.empty((*shape[:-1], *width), np.uint8)
        for name, part in ours.items():
            _put(made, _blocks(model, name, names), part)
        return made

    # The format does not keep a leading one.
    return _Stored(shape[1:] if shape[0] == 1 else shape, q4, make)


def _blocks(model: Model, name: str, names: frozenset[str]) -> np.ndarray:
    """A weight of ours as blocks, uint8[..., blocks of a row, bytes of a block]."""
    if f"{name}.qs" in names:
        return q4_blocks(model.tensor(f"{name}.d"), model.tensor(f"{name}.qs"))
    values = model.tensor(name) if name in names else _rates(model, name)
    return np.ascontiguousarray(values, "<f4")[..., np.newaxis].view(np.uint8)


def _rates(model: Model, name: str) -> np.ndarray:
    """nA = -expf(A_log) by the replica of contract 4: what an engine makes of it at load (3.2)."""
    logs = model.tensor(name.replace(".rates", ".a_log"))
    return -open_implementation("ucrt").evaluate("expf", logs)


def _put(out: np.ndarray, blocks: np.ndarray, part: Part) -> None:
    """The weight's blocks at their places in the file's tensor; the inverse of reading."""
    if part.heads is not None:
        heads = part.heads()
        runs = (*part.shape[:-1], len(heads), -1, blocks.shape[-1])
        out.reshape(runs)[..., heads, :, :] = blocks.reshape(runs)
    elif part.rows is not None:
        axis = max(0, len(part.shape) - 2)
        out[(slice(None),) * axis + (part.rows(),)] = blocks
    else:
        out[...] = blocks
