"""A real device through CuPy: plain device memory, our own cubins, no CuPy-made kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from parity.builds.provenance import COMPILED, PACKAGES, packages
from parity.errors import NotRunError, ParityBug
from parity.model.checks import check_options
from parity.protocol import EngineSettings
from parity_cuda import nvrtc
from parity_cuda.graph import FUSE, GRAPH, LAUNCHES, launches, switch
from parity_cuda.modules import Modules
from parity_cuda.programmatic import Programmatic, open_programmatic
from parity_cuda.sources import kernel_sources, known_mask, sources_digest, units_of

OVERLAP = "overlap"
DEVICE_TO_DEVICE = 3  # cudaMemcpyKind


def open_cupy() -> Any:
    """CuPy with a working driver and device, else NotRunError that says what is missing."""
    try:
        import cupy
    except ImportError as error:
        raise NotRunError(
            "cuda: CuPy is not installed",
            "pip install -e '.[cuda13]' (or [cuda12]) in parity's folder; or use --dut emu",
        ) from error
    # CuPy calls a missing driver "insufficient": ask for its version first.
    if cupy.cuda.runtime.driverGetVersion() == 0:
        raise NotRunError(
            "cuda: no NVIDIA driver on this machine (libcuda.so.1 not found)",
            "use --dut emu: the same kernels on the CPU, labelled emulated",
        )
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise NotRunError(f"cuda: the driver refuses: {error}", "use --dut emu") from error
    if count == 0:
        raise NotRunError("cuda: the driver sees no device", "use --dut emu")
    return cupy


class CupyBackend:
    """Device 0, or the one of CUDA_VISIBLE_DEVICES. Of the tiers' masks that of the settings has
    code of its own; under any other mask launches run the code that serves all."""

    def __init__(self, settings: EngineSettings, sources: Mapping[str, str] | None = None) -> None:
        check_options("cuda", settings.options, (GRAPH, FUSE, OVERLAP))
        self.graph = switch("cuda", settings.options, GRAPH, default=True)
        self.fuse = switch("cuda", settings.options, FUSE, default=True)
        overlap = switch("cuda", settings.options, OVERLAP, default=True)
        self._cupy = open_cupy()
        texts = kernel_sources() if sources is None else dict(sources)
        device = self._cupy.cuda.Device()
        self._arch = f"sm_{device.compute_capability}"
        self.processors = int(device.attributes["MultiProcessorCount"])
        units = units_of(texts, known_mask(settings.variants))
        paths = nvrtc.cached_cubins(texts, self._arch, units)
        loaded = {unit: self._cupy.RawModule(path=str(path)) for unit, path in paths.items()}
        for module in loaded.values():
            module.compile()  # loads it: none can be once a step is being recorded
        self._modules = Modules(texts, loaded)
        self.counts: Counter[str] = Counter()
        self._digest = sources_digest(texts)
        self._code = nvrtc.code_digest(paths.values())
        self._stream = _stream(self._cupy)
        self._stream.use()
        self._recording: Counter[str] | None = None
        arch = int(device.compute_capability)
        self._programmatic = open_programmatic(arch) if overlap else "not asked for"

    def info(self) -> Mapping[str, str]:
        """Device, driver and compiler."""
        runtime = self._cupy.cuda.runtime
        properties = runtime.getDeviceProperties(self._cupy.cuda.Device().id)
        driver = runtime.driverGetVersion()
        return {
            "device": properties["name"].decode(),
            "driver": f"CUDA {driver // 1000}.{driver % 1000 // 10}",
            "compiler": f"{nvrtc.nvrtc_version()}, CuPy {self._cupy.__version__}",
            "options": " ".join((self._arch, *nvrtc.FLAGS)),
            "kernels": self._digest,
            COMPILED: self._code[:16],
            PACKAGES: packages(("cupy",)),
            "emulated": "no",
            LAUNCHES: launches(self.fuse, self._overlap()),
        }

    def free_bytes(self) -> int | None:
        """Free memory of the device."""
        return int(self._cupy.cuda.runtime.memGetInfo()[0])

    def empty(self, shape: Sequence[int], dtype: type) -> Any:
        """Plain device memory of CuPy's pool (cudaMalloc)."""
        self._refuse_in_record("memory")
        return self._cupy.empty(tuple(shape), dtype)

    def upload(self, array: np.ndarray) -> Any:
        """Host to device."""
        self._refuse_in_record("an upload")
        buffer = self._cupy.empty(array.shape, array.dtype)
        buffer.set(np.ascontiguousarray(array))
        return buffer

    def download(self, buffer: Any) -> np.ndarray:
        """Device to host; waits for the stream."""
        self._refuse_in_record("a download")
        return np.asarray(buffer.get())

    def copy(self, target: Any, source: Any) -> None:
        """cudaMemcpyAsync on the launches' stream."""
        self._cupy.cuda.runtime.memcpyAsync(
            target.data.ptr, source.data.ptr, source.nbytes, DEVICE_TO_DEVICE, self._stream.ptr
        )

    def write(self, target: Any, array: np.ndarray) -> None:
        """Host to device, into an existing buffer."""
        self._refuse_in_record("a write")
        target.set(np.ascontiguousarray(array))

    def zero(self, target: Any) -> None:
        """cudaMemsetAsync on the launches' stream."""
        self._cupy.cuda.runtime.memsetAsync(target.data.ptr, 0, target.nbytes, self._stream.ptr)

    def address(self, buffer: Any) -> int:
        """Device address."""
        return int(buffer.data.ptr)

    def launch(
        self,
        kernel: str,
        grid: Sequence[int],
        block: int | tuple[int, ...],
        args: Sequence[Any],
        shared: int = 0,
        *,
        overlap: bool = False,
    ) -> None:
        """Launch on the engines' stream; to overlap, where the driver can."""
        code = self._modules.code(kernel, args)
        code.allow(shared, overlap=overlap)
        function = code.function
        counts = self.counts if self._recording is None else self._recording
        counts[kernel] += 1
        shape = block if isinstance(block, tuple) else (block,)
        if overlap and isinstance(self._programmatic, Programmatic):
            handles = (function.kernel.ptr, self._stream.ptr)
            self._programmatic.launch(*handles, grid, shape, args, shared)
            return
        function(tuple(grid), shape, tuple(args), shared_mem=shared)

    def record(self, run: Callable[[], None]) -> tuple[Any, Counter[str]]:
        """A CUDA graph, captured from the stream, and its launches by kernel."""
        launches: Counter[str] = Counter()
        self._recording = launches
        self._stream.begin_capture()
        try:
            run()
        finally:
            graph = self._stream.end_capture()
            self._recording = None
        return graph, launches

    def replay(self, recorded: tuple[Any, Counter[str]]) -> None:
        """One launch of the graph."""
        graph, launches = recorded
        graph.launch(self._stream)
        self.counts += launches

    def _overlap(self) -> str:
        none = self._programmatic if isinstance(self._programmatic, str) else ""
        return f"no overlap: {none}" if none else "overlapping"

    def _refuse_in_record(self, what: str) -> None:
        if self._recording is not None:
            raise ParityBug(f"cuda: {what} is asked for while a step is recorded")


@cache
def _stream(cupy: Any) -> Any:
    """The one stream of all engines of this process: the default one cannot be captured. Kept for
    good, since CuPy's current stream must outlive who made it current."""
    return cupy.cuda.Stream()
