"""What a header says of the engine: versions, device, and the settings that bits hang on."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from typing import Any

import torch
import transformers

from parity.builds.provenance import PACKAGES, packages
from parity_torch.invariant import settings_text
from parity_torch.maps import map_text
from parity_torch.options import Options
from parity_torch.requirements import NAMES

_BLAS = re.compile(r"BLAS_INFO=(\w+)")
_ONEDNN = re.compile(r"(?:oneDNN|MKL-DNN) v([\w.]+)")


def facts_of(options: Options, lacks: Mapping[str, str], module: Any = None) -> dict[str, str]:
    """Header values by name. ``lacks``: capabilities that the loaded model does not have.
    ``module``: the loaded model, which tells the attention that the library chose."""
    chosen = "" if module is None else str(getattr(module.config, "_attn_implementation", ""))
    return {
        "device": _device(options),
        "driver": f"CUDA {torch.version.cuda}" if options.device == "cuda" else "none",
        "compiler": f"torch {torch.__version__}, transformers {transformers.__version__}",
        "options": (
            f"dtype={options.dtype} device={options.device} "
            f"attn={options.attn or chosen or 'default'} "
            f"invariant={'on' if options.invariant else 'off'} prefill={options.prefill}"
        ),
        "kernels": _libraries(options),
        "threads": str(options.threads or torch.get_num_threads()),
        "deterministic": _yes(torch.are_deterministic_algorithms_enabled()),
        "matmul": torch.get_float32_matmul_precision(),
        **({"invariant": settings_text(options.device)} if options.invariant else {}),
        PACKAGES: packages(NAMES),
        "emulated": "no",
        "kv": options.dtype,  # not what the configuration of the same weights says for cpu
        **({} if module is None else {"map": map_text(module)}),
        **({"lacks": "; ".join(f"{name} ({why})" for name, why in lacks.items())} if lacks else {}),
    }


def _device(options: Options) -> str:
    if options.device == "cuda":
        return str(torch.cuda.get_device_name())
    return f"{platform.processor() or platform.machine()}, {os.cpu_count()} threads"


def _libraries(options: Options) -> str:
    """The libraries of the matrix products: ``BLAS mkl, oneDNN 3.7.1``."""
    built = torch.__config__.show()
    if options.device == "cuda":
        tf32 = _yes(torch.backends.cuda.matmul.allow_tf32)
        return f"cuDNN {torch.backends.cudnn.version()}, tf32 {tf32}"
    blas, onednn = _BLAS.search(built), _ONEDNN.search(built)
    used = onednn is not None and torch.backends.mkldnn.is_available()
    parts = [f"BLAS {blas[1] if blas else 'unknown'}"]
    parts += [f"oneDNN {onednn[1]}"] if used and onednn is not None else []
    return ", ".join([*parts, torch.backends.cpu.get_cpu_capability()])


def _yes(flag: Any) -> str:
    return "yes" if flag else "no"
