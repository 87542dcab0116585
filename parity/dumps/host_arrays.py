"""Arrays of other libraries as NumPy arrays on the host, with the dump's name of their dtype.

NumPy, PyTorch, CuPy and whatever speaks DLPack or one of the array interfaces. Nothing is imported
for it: an array's library is loaded already, or it could not be here. An array is only read; a
device's is copied to the host once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from parity.dtypes import FLOATS, bit_patterns, dtype_name
from parity.dumps.tensor_files import Tensor
from parity.errors import InputError

_ON_HOST = (1, 3, 11)  # DLPack's device types: CPU, CUDA's and ROCm's pinned memory
_GIVE = "give a NumPy, CuPy or PyTorch array of real floats, integers or booleans"
_TO_HOST = "bring it to the host first: x.cpu(), x.get() or numpy.asarray(x)"
# What the libraries raise for an array that they cannot hand out.
_UNABLE = (RuntimeError, TypeError, ValueError, BufferError, NotImplementedError, AttributeError)


def host_tensor(value: Any, dtype: str | None = None) -> Tensor:
    """``value`` as an array on the host, any strides and byte order, and its dtype's name.

    bf16 is carried in uint16. ``dtype``: the name that it must have; ``bf16`` also for bits that
    lie in an array of 16-bit integers. Memory is shared with ``value`` where that lies on the host:
    do not write to it. Raises InputError for what is no array, for a dtype that no dump can name
    and for one that is not ``dtype``.
    """
    found = _tensor(value)
    if dtype is None or dtype == found.dtype:
        return found
    if dtype == "bf16" and found.dtype in ("int16", "uint16"):
        return Tensor(found.array.view(f"{found.array.dtype.byteorder}u2"), "bf16")
    raise InputError(f"an array of {found.dtype}, not of {dtype}", "leave dtype out, or convert it")


def nonfinite_of(tensor: Tensor) -> tuple[int, int] | None:
    """(count, flat index of the first) of NaN and infinities in C order; None where there are
    none, and for integers and booleans."""
    form = FLOATS.get(tensor.dtype)
    if form is None:
        return None
    magnitude = bit_patterns(tensor.array) & ((1 << (form.bits - 1)) - 1)
    found = np.flatnonzero(magnitude >= form.infinity)
    return (found.size, int(found[0])) if found.size else None


def _tensor(value: Any) -> Tensor:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _from_torch(torch, value)
    if isinstance(value, np.ma.MaskedArray):
        raise InputError("a masked array: masked elements have no value", "give x.filled(VALUE)")
    array = value if isinstance(value, np.ndarray | np.generic) else _array(value)
    array = np.asarray(array)
    name = dtype_name(array.dtype)
    return Tensor(array.view(np.uint16) if name == "bf16" else array, name)


def _array(value: Any) -> Any:
    """The NumPy array of another library's array."""
    what = _named(value)
    with _refused(what):
        if hasattr(value, "__cuda_array_interface__"):
            return _from_device(value, what)
        if hasattr(value, "__array_interface__"):
            return np.asarray(value)
        if hasattr(value, "__dlpack__"):
            return _from_dlpack(value, what)
        if hasattr(value, "__array__"):
            return np.asarray(value)
    raise InputError(f"{what} is no array", _GIVE)


def _from_torch(torch: Any, tensor: Any) -> Tensor:
    what = f"{_named(tensor)} of {tensor.dtype}"
    if tensor.layout is not torch.strided:
        raise InputError(f"{what} has the layout {tensor.layout}", "give x.to_dense()")
    if tensor.is_quantized:
        raise InputError(f"{what} is quantized", "give x.int_repr()")
    if str(tensor.dtype).startswith("torch.float8"):
        raise InputError(f"{what} cannot be compared", "give its bits: x.view(torch.uint8)")
    with _refused(what):
        host = tensor.detach().resolve_conj().resolve_neg().cpu()
        if host.dtype is torch.bfloat16:
            return Tensor(host.view(torch.int16).numpy().view(np.uint16), "bf16")
        array = host.numpy()
    return Tensor(array, dtype_name(array.dtype))


def _from_device(value: Any, what: str) -> Any:
    """A copy of a device's array: CuPy's ``get``, Numba's ``copy_to_host``, else through CuPy."""
    for name in ("get", "copy_to_host"):
        if callable(copy := getattr(value, name, None)):
            return copy()
    cupy = sys.modules.get("cupy")
    if cupy is None:
        raise InputError(f"{what} lies on a device, and CuPy is not loaded to read it", _TO_HOST)
    return cupy.asnumpy(value)


def _from_dlpack(value: Any, what: str) -> Any:
    """Through NumPy where the memory is the host's and the dtype one that NumPy knows; else through
    a library that is loaded, or ``__array__``."""
    if value.__dlpack_device__()[0] in _ON_HOST:
        try:
            return np.from_dlpack(value)
        except (RuntimeError, BufferError):  # bf16: NumPy has no such dtype
            if hasattr(value, "__array__"):
                return np.asarray(value)
            raise
    cupy = sys.modules.get("cupy")
    if cupy is None:
        raise InputError(f"{what} lies on a device, and CuPy is not loaded to read it", _TO_HOST)
    return cupy.from_dlpack(value).get()


@contextmanager
def _refused(what: str) -> Iterator[None]:
    """Name ``what`` in what its library says when it cannot hand it out."""
    try:
        yield
    except _UNABLE as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{what} cannot be read: {said}", _TO_HOST) from error


def _named(value: Any) -> str:
    """``torch.Tensor``, ``list``."""
    kind = type(value)
    module = kind.__module__.split(".")[0]
    return kind.__name__ if module == "builtins" else f"{module}.{kind.__name__}"
