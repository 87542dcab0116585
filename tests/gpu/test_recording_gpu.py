"""Taps of a device's arrays: CuPy's, PyTorch's where it is installed, and by their interfaces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import parity
from parity.dumps.recording import record
from parity.fnv import fnv1a64

pytestmark = pytest.mark.gpu

GRID = np.arange(24, dtype=np.float32).reshape(4, 6)


def entry_of(array: Any) -> tuple[str, int]:
    with record(None, engine="mine") as tap:
        tap(0, 0, "x", array)
    (entry,) = tap.dump.entries
    return str(entry.type), entry.digest


def views(array: Any) -> dict[str, Any]:
    """Views that NumPy, CuPy and PyTorch make alike."""
    return {
        **{"plain": array, "transposed": array.T, "stepped": array[::2, 1::2]},
        **{"row": array[1], "scalar": array[1, 2], "empty": array[:0]},
    }


@pytest.mark.parametrize("view", views(GRID))
@pytest.mark.parametrize("dtype", ["f4", "f2", "f8", "i1", "i4", "i8", "u1", "?"])
def test_cupy_arrays_are_the_same_values(view: str, dtype: str) -> None:
    import cupy

    host = GRID.astype(dtype)
    device = cupy.asarray(host)
    before = device.copy()
    wanted = np.asarray(views(host)[view])
    assert entry_of(views(device)[view])[1] == fnv1a64(np.ascontiguousarray(wanted).tobytes())
    assert entry_of(views(device)[view]) == entry_of(wanted)
    assert bool((device == before).all())


class Interface:
    """A device's array by ``__cuda_array_interface__`` alone."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.__cuda_array_interface__ = array.__cuda_array_interface__


class Exporter:
    """A device's array by DLPack alone."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)


@pytest.mark.parametrize("kind", [Interface, Exporter])
def test_interfaces_are_read_through_cupy(kind: type) -> None:
    import cupy

    for view in (cupy.asarray(GRID), cupy.asarray(GRID).T, cupy.asarray(GRID)[::2, 1::2]):
        assert entry_of(kind(view)) == entry_of(cupy.asnumpy(view))


def test_a_tap_waits_for_what_was_queued_before() -> None:
    """A slow kernel on the stream in use, then a tap of what it writes."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    big = cupy.ones((2048, 2048), cupy.float32)
    out = cupy.zeros(1024, cupy.float32)
    with stream:
        for _ in range(50):
            big = cupy.sqrt(big @ big / 2048)
        out += 7
        found = entry_of(out)
    assert found == entry_of(np.full(1024, 7, np.float32))


def test_torch_tensors_on_a_device_are_the_same_values() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no device")
    for dtype in ("float32", "float16", "bfloat16", "float64", "int8", "int64", "bool"):
        host = torch.arange(24).reshape(4, 6).to(getattr(torch, dtype))
        for view in ("plain", "stepped", "row", "scalar", "empty"):
            device = views(host.cuda())[view]
            if device.is_floating_point():
                device.requires_grad_()
            assert entry_of(device) == entry_of(views(host)[view]), (dtype, view)


def test_a_ulp_on_the_device_is_found() -> None:
    import cupy

    ref = cupy.asarray(GRID)
    dut = ref.copy()
    dut[2, 3] = cupy.nextafter(dut[2, 3], cupy.float32(99))
    found = parity.compare({"x": ref}, {"x": dut})
    assert (found.verdict, found.first, int(found.exit_status)) == ("diverged", "x", 1)
    assert found.elements is not None
    assert [(row.index, row.ulp) for row in found.elements.rows] == [((2, 3), 1)]
    assert parity.compare({"x": ref}, {"x": GRID}).same
