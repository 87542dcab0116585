"""The packages and the device that the engine needs, and the one line where one is missing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from parity.errors import NotRunError

NAMES = ("torch", "transformers", "ml_dtypes")
INSTALL = "run: pip install 'parity-harness[torch]'"
# The hub's client reads this when it is imported: no model, kernel or code is ever fetched.
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


def require_packages() -> None:
    """Import what the engine runs on; NotRunError, naming the package, where one is missing."""
    if "huggingface_hub" not in sys.modules:
        os.environ.update(_OFFLINE)
    for name in NAMES:
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            missing = (error.name or name).partition(".")[0]
            raise NotRunError(f"hf: {missing} is not installed", INSTALL) from error
        except (ImportError, OSError, RuntimeError) as error:
            raise NotRunError(
                f"hf: {name} cannot be imported: {first_line(error)}", INSTALL
            ) from error


def require_device(device: str) -> None:
    """NotRunError, saying which of the two it is, for a CPU build and for a missing device."""
    import torch

    if device == "cpu" or torch.cuda.is_available():
        return
    if torch.version.cuda is None and torch.version.hip is None:
        raise NotRunError(
            f"hf: device={device}: torch {torch.__version__} is built without CUDA",
            "install a CUDA build of torch, or give device=cpu",
        )
    raise NotRunError(
        f"hf: device={device}: torch {torch.__version__} finds no device: {_cuda_problem()}",
        "check nvidia-smi, or give device=cpu",
    )


def _cuda_problem() -> str:
    """Why CUDA cannot be used, as torch says it."""
    import torch

    try:
        torch.cuda.init()
    except Exception as error:  # whatever the driver's start fails with
        return first_line(error)
    return "0 devices"


def first_line(error: BaseException) -> str:
    """The first sentence that an error says, with its kind where it says nothing."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines or isinstance(error, KeyError):
        lines = [f"{type(error).__name__} {''.join(lines)}".strip()]
    return lines[0].split(". ")[0].rstrip(".:")


@contextmanager
def quiet() -> Iterator[None]:
    """transformers without progress bars and warnings meanwhile: parity's own lines tell."""
    import transformers.utils.logging as told

    level, bars = told.get_verbosity(), told.is_progress_bar_enabled()
    told.set_verbosity_error()
    told.disable_progress_bar()
    try:
        yield
    finally:
        told.set_verbosity(level)
        if bars:
            told.enable_progress_bar()


def dtype_of(name: str) -> Any:
    """The torch dtype of ``f32``, ``bf16`` or ``f16``."""
    import torch

    return {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[name]
