"""Run CUDA kernel texts on the CPU, bit for bit: a C++ shim, fibers, and a launcher.

``EmuModule(build_module({"rmsnorm.cu": text}))`` gives kernels to launch under a ``Schedule``.
"""

from parity_cuda.emu.build import BuiltModule, Mode, build_module, cache_folder
from parity_cuda.emu.compiler import Compiler, find_compiler, sanitizer_env
from parity_cuda.emu.launch import EmuModule, KernelFault, Schedule

__all__ = [
    "BuiltModule",
    "Compiler",
    "EmuModule",
    "KernelFault",
    "Mode",
    "Schedule",
    "build_module",
    "cache_folder",
    "find_compiler",
    "sanitizer_env",
]
