"""What other tools say of the same tensors: run by another Python, where they are installed.

Usage: tool_worker.py FOLDER OUT.json. FOLDER holds one ``<id>.npz`` a fault with ``<n>_ref`` and
``<n>_dut``, the tensors that differ, in dataflow order. OUT.json: by tool its version, or why it is
not there, and by fault the number of the first tensor that it calls different, or null.
Every tool is called as it is shipped, with its own defaults.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

Differs = Callable[[Any, Any], bool]  # of two arrays
NMSE_LIMIT = 1e-7  # the default of llama.cpp's test-backend-ops


def torch_equal() -> tuple[str, Differs]:
    """torch.equal."""
    import torch

    return torch.__version__, lambda a, b: not torch.equal(*map(torch.from_numpy, (a, b)))


def torch_allclose() -> tuple[str, Differs]:
    """torch.allclose with its defaults, rtol 1e-5 and atol 1e-8."""
    import torch

    return torch.__version__, lambda a, b: not torch.allclose(*map(torch.from_numpy, (a, b)))


def torch_close() -> tuple[str, Differs]:
    """torch.testing.assert_close with its defaults for the dtype."""
    import torch

    def differs(a: Any, b: Any) -> bool:
        try:
            torch.testing.assert_close(torch.from_numpy(a), torch.from_numpy(b))
        except AssertionError:
            return True
        return False

    return torch.__version__, differs


def nmse() -> tuple[str, Differs]:
    """Mean squared error over the mean square of the ref, in float64."""

    def differs(a: Any, b: Any) -> bool:
        wide = a.astype(np.float64), b.astype(np.float64)
        with np.errstate(all="ignore"):
            error = ((wide[0] - wide[1]) ** 2).sum() / (wide[0] ** 2).sum()
        return not (error <= NMSE_LIMIT or np.array_equal(a, b))

    return f"limit {NMSE_LIMIT:g}", differs


def _debug_mode(name: str) -> tuple[str, Differs]:
    import torch
    from torch.utils._debug_mode import DebugMode

    def logs(array: Any) -> list[Any]:
        with DebugMode() as mode, DebugMode.log_tensor_hashes(hash_fn=name):
            torch.from_numpy(array).clone()
        return list(mode.logs)

    return torch.__version__, lambda a, b: bool(DebugMode.check_hash_mismatches(logs(a), logs(b)))


def debug_norm() -> tuple[str, Differs]:
    """The L1 norm that DebugMode logs by default."""
    return _debug_mode("norm")


def debug_hash() -> tuple[str, Differs]:
    """torch.hash_tensor as DebugMode logs it."""
    return _debug_mode("hash_tensor")


def polygraphy() -> tuple[str, Differs]:
    """Polygraphy's simple comparison, rtol and atol 1e-5."""
    from polygraphy import comparator
    from polygraphy.comparator.struct import IterationResult
    from polygraphy.logger import G_LOGGER

    G_LOGGER.module_severity = G_LOGGER.CRITICAL
    made: Any = getattr(comparator, "SimpleCompareFunc", None) or comparator.CompareFunc.simple
    compare = made()

    def differs(a: Any, b: Any) -> bool:
        return not compare(IterationResult({"x": a}), IterationResult({"x": b}))["x"]

    return version("polygraphy"), differs


def msprobe_tensor() -> tuple[str, Differs]:
    """msprobe's tensor task: cosine and largest absolute error, "Accuracy Reached or Not"."""
    from msprobe.core.common.const import CompareConst
    from msprobe.core.compare.multiprocessing_compute import check_accuracy
    from msprobe.core.compare.npy_compare import compare_ops_apply, npy_data_check

    columns = CompareConst.BUILTIN_COMPARE_COLUMNS
    cosine, largest = columns.index("Cosine"), columns.index("MaxAbsErr")

    def differs(a: Any, b: Any) -> bool:
        given = a.copy(), b.copy()
        flag, message = npy_data_check(*given)
        results, _ = compare_ops_apply(*given, flag, message)
        return bool(check_accuracy(results[cosine], results[largest]) != "Yes")

    return version("mindstudio-probe"), differs


def msprobe_md5() -> tuple[str, Differs]:
    """msprobe's md5 task: a CRC-32 of the bytes."""
    import torch
    from msprobe.core.dump.data_dump.data_processor import pytorch_processor

    crc = pytorch_processor.PytorchDataProcessor.compute_crc32_from_tensor

    def differs(a: Any, b: Any) -> bool:
        return bool(crc(torch.from_numpy(a)) != crc(torch.from_numpy(b)))

    return version("mindstudio-probe"), differs


TOOLS: dict[str, Callable[[], tuple[str, Differs]]] = {
    "torch.equal": torch_equal,
    "allclose": torch_allclose,
    "assert_close": torch_close,
    "NMSE": nmse,
    "norm hash": debug_norm,
    "hash_tensor": debug_hash,
    "Polygraphy": polygraphy,
    "msprobe": msprobe_tensor,
    "msprobe md5": msprobe_md5,
}


def first_flagged(differs: Differs, pairs: list[tuple[Any, Any]]) -> int | None:
    """The number of the first pair that a tool calls different."""
    return next((at for at, (ref, dut) in enumerate(pairs) if differs(ref, dut)), None)


def read_pairs(path: Path) -> list[tuple[Any, Any]]:
    """The tensors of one fault."""
    with np.load(path) as file:
        count = len(file.files) // 2
        return [(file[f"{at}_ref"], file[f"{at}_dut"]) for at in range(count)]


def run_tool(start: Callable[[], tuple[str, Differs]], files: list[Path]) -> dict[str, Any]:
    """What one tool says of every fault; ``error`` where it cannot be used."""
    try:
        told, differs = start()
        flagged = {path.stem: first_flagged(differs, read_pairs(path)) for path in files}
    except Exception as error:  # an import or a call may raise anything
        return {"error": f"{type(error).__name__}: {error}"}
    return {"version": told, "flagged": flagged}


def main(folder: str, out: str) -> None:
    """Ask every tool."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    files = sorted(Path(folder).glob("*.npz"))
    found = {name: run_tool(start, files) for name, start in TOOLS.items()}
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
