"""Sums by atomics on a CUDA device: every block of terms is added when it happens to be ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

if TYPE_CHECKING:
    from torch import Tensor

Floats = npt.NDArray[np.float32]


def by_index_add(w: Floats) -> Floats:
    """(rows,): the sums of w (rows, K), all terms of a row added to one place of memory."""
    found, rows, terms = _places(w)
    return found.index_add_(0, rows, terms).cpu().numpy()


def by_scatter_add(w: Floats) -> Floats:
    """As ``by_index_add``, by another of torch's kernels."""
    found, rows, terms = _places(w)
    return found.scatter_add_(0, rows, terms).cpu().numpy()


def _places(w: Floats) -> tuple[Tensor, Tensor, Tensor]:
    """Zeros (rows,), and for each term its row and itself; neighbours are of different rows."""
    terms = torch.from_numpy(w).cuda().T.contiguous().reshape(-1)
    rows = torch.arange(len(w), device="cuda").repeat(w.shape[1])
    return torch.zeros(len(w), device="cuda"), rows, terms
