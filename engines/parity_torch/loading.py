"""A module of transformers from a model: a checkpoint, a random one, or ours put into one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parity.errors import InputError, NotRunError, ParityError
from parity.model.file_model import FileModel
from parity.model.model import Around, Model
from parity_torch.building import fill, library_config
from parity_torch.memory import is_out_of_memory
from parity_torch.models import ModulesModel, RandomModel
from parity_torch.options import Options
from parity_torch.requirements import dtype_of, first_line, quiet

if TYPE_CHECKING:
    from torch import nn

# No file is fetched and no code of a checkpoint is run, whatever its configuration asks for.
LOCAL = {"local_files_only": True, "trust_remote_code": False}
_NOT_CAUSAL = re.compile(r"Unrecognized configuration class <class '(?:\w+\.)*(\w+)'>")
_READ_AGAIN = "check the folder with the transformers that wrote it"


def load_module(model: Model, options: Options) -> nn.Module:
    """The module of ``model`` in evaluation mode, in the dtype and on the device of ``options``.

    Raises InputError for a folder that transformers cannot read, NotRunError where a package that
    it needs is missing.
    """
    import torch

    given = unwrapped(model)
    with told(given.label), quiet(), torch.no_grad():
        module = _made(given, model, options)
    return module.eval().requires_grad_(False).to(options.device)


def unwrapped(model: Model) -> Model:
    """The model itself, without what watches its loading."""
    while isinstance(model, Around):
        model = model.model
    return model


def _made(given: Model, model: Model, options: Options) -> nn.Module:
    if isinstance(given, ModulesModel):
        if given.random:
            return random_module(given.path, given.seed, options)
        return checkpoint(given.path, options)
    if isinstance(given, FileModel) and given.source.format == "safetensors":
        if any(name.endswith(".qs") for name in given.names()):
            raise InputError(
                f"hf: {given.label}: transformers reads the folder's floats, not Q4_0",
                "leave --weights out",
            )
        return checkpoint(given.source.path, options)
    if isinstance(given, RandomModel):
        module = from_config(read_config(given.path), options)
    else:
        module = from_config(library_config(given.config)[1], options)
    fill(module, model)
    return module


def read_config(path: Path) -> Any:
    """The library's configuration of a folder."""
    import transformers

    return transformers.AutoConfig.from_pretrained(path, **LOCAL)


def checkpoint(path: Path, options: Options) -> nn.Module:
    """The module of a folder with weights; InputError where it misses a tensor."""
    import transformers

    kind: Any = transformers.AutoModelForCausalLM
    module, found = kind.from_pretrained(
        path,
        dtype=dtype_of(options.dtype),
        attn_implementation=options.attn or None,
        output_loading_info=True,
        **LOCAL,
    )
    missing = sorted(found["missing_keys"])
    if missing:
        raise InputError(
            f"hf: {path}: {len(missing)} tensors missing, first {missing[0]}", _READ_AGAIN
        )
    return module


def from_config(config: Any, options: Options) -> nn.Module:
    """A module with the library's own random weights; torch's generators stay as they were."""
    import torch
    import transformers

    with torch.random.fork_rng(devices=[]):
        return transformers.AutoModelForCausalLM.from_config(
            config,
            dtype=dtype_of(options.dtype),
            attn_implementation=options.attn or None,
            trust_remote_code=False,
        )


def random_module(path: Path, seed: int, options: Options) -> nn.Module:
    """The library's random weights of ``seed``, drawn as f32 and rounded once to the dtype."""
    import torch
    import transformers

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = transformers.AutoModelForCausalLM.from_config(
            read_config(path),
            dtype=torch.float32,
            attn_implementation=options.attn or None,
            trust_remote_code=False,
        )
    return module.to(dtype_of(options.dtype))


@contextmanager
def told(label: str) -> Iterator[None]:
    """What transformers refuses, as one line that names the model."""
    try:
        yield
    except (ParityError, MemoryError):
        raise
    except ImportError as error:
        raise NotRunError(
            f"hf: {label} needs a package that is not here: {first_line(error)}", "install it"
        ) from error
    except Exception as error:
        if is_out_of_memory(error):
            raise
        text, next_step = first_line(error), _READ_AGAIN
        if "attention implementation" in text:
            next_step = "leave attn out, or give attn=eager"
        if kind := _NOT_CAUSAL.match(text):
            text = f"transformers has no model for causal language modelling with a {kind[1]}"
            next_step = "give a decoder, such as a Llama, GPT-2 or Qwen3"
        if "trust_remote_code" in str(error):
            text = "it needs code of its own (auto_map), which parity does not run"
        raise InputError(f"hf: {label}: {text}", next_step) from error
