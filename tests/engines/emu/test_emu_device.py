"""What the emulator stands for: the same texts on a GPU give the same bits, NaN payloads aside."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity_cuda import nvrtc
from parity_cuda.cupy_backend import open_cupy
from parity_cuda.emu import EmuModule, build_module
from tests.engines.emu.primitives import DTYPES, Op, all_ops, arguments, kernels
from tests.engines.emu.reference import ASCENDING, expected, inputs, run_all
from tests.engines.emu.test_emu_primitives import compute, different

pytestmark = pytest.mark.gpu

# An atomic on a local variable means nothing on a device.
OPS = [op for op in all_ops() if "atomic" not in op.expression]
GOOD = ("good.cu", "good.cuh")


class DeviceModule:
    """Stands in for EmuModule: arrays go to the device and come back."""

    def __init__(self, sources: dict[str, str], folder: Path) -> None:
        self._cupy = open_cupy()
        arch = f"sm_{self._cupy.cuda.Device().compute_capability}"
        path = folder / "kernels.cubin"
        path.write_bytes(nvrtc.compile_cubin(sources, arch)[0])
        self._module = self._cupy.RawModule(path=str(path))

    def launch(
        self,
        name: str,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: Any,
        shared_bytes: int = 0,
        **_: object,
    ) -> None:
        there = [self._cupy.asarray(a) if isinstance(a, np.ndarray) else a for a in args]
        self._module.get_function(name)(grid, block, tuple(there), shared_mem=shared_bytes)
        for host, device in zip(args, there, strict=True):
            if isinstance(host, np.ndarray) and host.flags.writeable:
                host[...] = device.get()


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, EmuModule]:
    sources = {"primitives.cu": kernels(OPS)}
    device = DeviceModule(sources, tmp_path_factory.mktemp("cubin"))
    return device, EmuModule(build_module(sources))


@pytest.mark.parametrize(
    "number", range(len(OPS)), ids=[f"{op.takes}-{op.gives} {op.expression}" for op in OPS]
)
def test_primitive_on_the_device(modules: tuple[Any, EmuModule], number: int) -> None:
    op: Op = OPS[number]
    given = arguments(op, random_count=20000)
    got, emulated = (compute(module, number, op, given) for module in modules)
    assert got.dtype == DTYPES[op.gives]
    bad = different(got, emulated)
    first = [column[bad[:1]] for column in (*given, got, emulated)]
    assert not len(bad), f"{len(bad)} of {len(got)}; first: arguments, device, emulated {first}"


def test_kernels_on_the_device(cuda_text: Callable[[str], str], tmp_path: Path) -> None:
    device: Any = DeviceModule({name: cuda_text(name) for name in GOOD}, tmp_path)
    assert run_all(device, inputs(), ASCENDING) == expected(inputs())
