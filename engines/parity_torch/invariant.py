"""``invariant=on``: torch's own settings that bear on whether a row depends on its batch.

They are set around each forward and put back after it. None of them promises that rows do not
depend on their batch; ``parity isodiff`` says whether they do. What was measured stands in
docs/torch.md, "Rows and batches".
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

_BLAS = "cublaslt"
_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"  # read by cuBLAS once, before the first product


def settings_text(device: str) -> str:
    """What is set, for the header; the cuBLAS workspace, which only the environment can set, is
    told as it was found."""
    told = ["sdpa=math", "deterministic=warn"]
    if device == "cpu":
        return " ".join([*told, "threads=1", "mkldnn=off"])
    told += ["reduced_precision_reduction=off", "split_k=off", "cudnn_benchmark=off"]
    workspace = f"{_WORKSPACE}={os.environ.get(_WORKSPACE, 'unset')}"
    return " ".join([*told, f"blas={_BLAS}", workspace])


@contextmanager
def invariant(device: str) -> Iterator[None]:
    """Inside, the settings of ``settings_text``; afterwards everything is as it was.

    The attention of ``attn=sdpa`` is computed by its plain formula, not by a fused kernel that
    splits the keys by their number; products are not split along the sum, nor rounded between.
    """
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with ExitStack() as stack:
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(_deterministic(torch))
        if device == "cpu":
            stack.enter_context(_one_thread(torch))
            stack.enter_context(_put(torch.backends.mkldnn, "enabled", False))
        else:
            stack.enter_context(_cuda(torch))
        yield


@contextmanager
def _deterministic(torch: Any) -> Iterator[None]:
    """Only a warning where an op has no deterministic form, and that one is not shown: the header
    says what was asked for."""
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*determinis.*")
            yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn_only)
        torch.utils.deterministic.fill_uninitialized_memory = fill


@contextmanager
def _one_thread(torch: Any) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _put(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def _cuda(torch: Any) -> Iterator[None]:
    """Products of two halves: no partial sums in half precision, no split of the sum (torch 2.9 and
    newer take both as a pair), no trials of kernels, one library."""
    matmul = torch.backends.cuda.matmul
    with ExitStack() as stack:
        for name in ("bf16", "fp16"):
            stack.enter_context(_no_reduction(matmul, f"allow_{name}_reduced_precision_reduction"))
        stack.enter_context(_put(torch.backends.cudnn, "benchmark", False))
        stack.enter_context(_blas(torch))
        yield


@contextmanager
def _no_reduction(matmul: Any, name: str) -> Iterator[None]:
    split = getattr(matmul, f"{name}_split_k", None)
    before = getattr(matmul, name)
    setattr(matmul, name, False if split is None else (False, False))
    try:
        yield
    finally:
        setattr(matmul, name, before if split is None else (before, split))


@contextmanager
def _blas(torch: Any) -> Iterator[None]:
    """cuBLASLt for every product: without it torch chooses by shape."""
    before = torch.backends.cuda.preferred_blas_library()
    torch.backends.cuda.preferred_blas_library(_BLAS)
    try:
        yield
    finally:
        torch.backends.cuda.preferred_blas_library(before)
