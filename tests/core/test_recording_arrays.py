"""Arrays of every kind that a tap takes: what is hashed, and that the array is left as it was.

The libraries of devices are not installed everywhere: stand-ins implement their interfaces here, so
that each path runs; PyTorch itself is used where it is installed, CuPy in tests/gpu.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parity.dtypes import tensor_bytes
from parity.dumps.host_arrays import host_tensor, nonfinite_of
from parity.dumps.recording import record
from parity.errors import InputError
from parity.fnv import fnv1a64

F32 = np.float32
GRID = np.arange(24, dtype=F32).reshape(4, 6)


def entry_of(array: Any, **options: Any) -> tuple[str, int]:
    """(type, digest) that a tap records."""
    with record(None, engine="mine") as tap:
        tap(0, 0, "x", array, **options)
    (entry,) = tap.dump.entries
    return str(entry.type), entry.digest


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


ARRAYS = {
    "contiguous": (GRID, "f32[4,6]"),
    "transposed": (GRID.T, "f32[6,4]"),
    "every second": (GRID[::2, 1::2], "f32[2,3]"),
    "reversed": (GRID[::-1, ::-1], "f32[4,6]"),
    "broadcast": (np.broadcast_to(F32(2), (3, 2)), "f32[3,2]"),
    "column order": (np.asfortranarray(GRID), "f32[4,6]"),
    "read-only": (read_only(GRID), "f32[4,6]"),
    "scalar": (np.array(1.5, F32), "f32[]"),
    "numpy scalar": (F32(1.5), "f32[]"),
    "empty": (np.empty((0, 3), F32), "f32[0,3]"),
    "f16": (GRID.astype(np.float16), "f16[4,6]"),
    "f64": (GRID.astype(np.float64), "f64[4,6]"),
    "bool": (GRID > 3, "bool[4,6]"),
    **{
        name: (GRID.astype(name), f"{name}[4,6]")
        for name in (f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
    },
}


@pytest.mark.parametrize("case", ARRAYS)
def test_numpy_arrays_are_hashed_in_c_order(case: str) -> None:
    array, kind = ARRAYS[case]
    before, flags = array.copy(), str(array.flags)
    assert entry_of(array) == (kind, fnv1a64(np.ascontiguousarray(before).tobytes()))
    assert np.array_equal(array, before)
    assert str(array.flags) == flags


@pytest.mark.parametrize("case", ARRAYS)
def test_byte_order_does_not_matter(case: str) -> None:
    array = np.asarray(ARRAYS[case][0])
    swapped = array.astype(array.dtype.newbyteorder(">"))
    assert entry_of(swapped) == entry_of(array)


def test_the_values_of_the_page_have_the_digests_of_the_page() -> None:
    """The three that catch the hash of a view's memory (docs/dump-format.md)."""
    x = np.arange(16, dtype=F32)
    assert f"{entry_of(x[::2])[1]:016x}" == "675d16518c470145"
    assert f"{entry_of(x[::-1])[1]:016x}" == "e6317ba1d5d1aeb8"
    assert f"{entry_of(x.reshape(4, 4).T)[1]:016x}" == "715d61abb02be318"


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.ones(2, np.complex64), "dtype complex64 cannot be compared"),
        (np.array(["a"]), "dtype <U1 cannot be compared"),
        (np.array([b"a"]), "dtype |S1 cannot be compared"),
        (np.array([{}], object), "dtype object cannot be compared"),
        (np.zeros(1, "f4,f4"), "cannot be compared"),
        (np.array(["2026-01-01"], "M8[D]"), "dtype datetime64[D] cannot be compared"),
        (np.ones(2, np.longdouble), "cannot be compared"),
        (np.ma.masked_array([1.0, 2.0], [True, False]), "a masked array"),
        ([1.0, 2.0], "list is no array"),
        ((1.0,), "tuple is no array"),
        (1.0, "float is no array"),
        (None, "NoneType is no array"),
        ("x", "str is no array"),
        (b"x", "bytes is no array"),
        (GRID.astype(np.float64).tolist(), "list is no array"),
    ],
    ids=[
        *("complex", "text", "bytes of NumPy", "objects", "records", "dates", "long double"),
        *("masked", "list", "tuple", "number", "nothing", "str", "bytes", "nested list"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(array: Any, said: str) -> None:
    with pytest.raises(InputError) as caught:
        entry_of(array)
    assert caught.value.message.startswith("t0_l0_x: ")
    assert said in caught.value.message
    assert caught.value.next_step


def test_a_dtype_that_was_promised_is_held_to() -> None:
    assert entry_of(GRID, dtype="f32") == entry_of(GRID)
    with pytest.raises(InputError, match="an array of f64, not of f32"):
        entry_of(GRID.astype(np.float64), dtype="f32")
    bits = np.array([[0x3F80, 0x7FC0], [1, 2]], np.uint16)
    wanted = "bf16[2,2]", fnv1a64(bits.tobytes())
    for carrier in (bits, bits.view(np.int16), bits.astype(">u2"), np.asfortranarray(bits)):
        assert entry_of(carrier, dtype="bf16") == wanted
    with pytest.raises(InputError, match="an array of int32, not of bf16"):
        entry_of(bits.astype(np.int32), dtype="bf16")


@pytest.mark.parametrize(
    ("name", "carrier", "infinity", "nan"),
    [
        ("f16", np.uint16, 0x7C00, 0x7C01),
        ("bf16", np.uint16, 0x7F80, 0xFF81),
        ("f32", np.uint32, 0x7F800000, 0xFF800001),
        ("f64", np.uint64, 0x7FF0000000000000, 0xFFF0000000000001),
    ],
)
def test_what_is_not_finite_is_counted_in_every_float(
    name: str, carrier: type, infinity: int, nan: int
) -> None:
    bits = np.array([[0, infinity - 1, 1], [infinity, nan, 0]], carrier)
    floats = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
    tensor = host_tensor(bits if name == "bf16" else bits.view(floats[name]), name)
    assert nonfinite_of(tensor) == (2, 3)
    assert nonfinite_of(tensor._replace(array=tensor.array[:1])) is None


# --- other libraries, by their interfaces


class WithArrayInterface:
    """What PyTorch-free CPU libraries offer."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.__array_interface__ = array.__array_interface__


class WithDlpack:
    """An exporter of DLPack; ``device``: its device type (1 is the CPU)."""

    def __init__(self, array: np.ndarray, device: int = 1) -> None:
        self._array, self._device = array, device
        self.asked = 0

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device, 0

    def __dlpack__(self, **options: Any) -> Any:
        self.asked += 1
        return self._array.__dlpack__(**options)


class WithoutNumpysDtype(WithDlpack):
    """As JAX with a bf16 array: NumPy takes no such capsule, but ``__array__`` works."""

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("bfloat16 is not supported by this consumer")

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self._array


class WithCudaInterface:
    """A device's array: its memory cannot be read here."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.__cuda_array_interface__ = {**array.__array_interface__, "version": 3}


class LikeCupy(WithCudaInterface):
    """CuPy's arrays come to the host with ``get``."""

    copies = 0

    def get(self) -> np.ndarray:
        type(self).copies += 1
        return self._array.copy()


class LikeNumba(WithCudaInterface):
    """Numba's with ``copy_to_host``."""

    def copy_to_host(self) -> np.ndarray:
        return self._array.copy()


@pytest.mark.parametrize(
    "array",
    [GRID, GRID.T, GRID[::2, 1::2], GRID[::-1]],
    ids=["plain", "transposed", "stepped", "reversed"],
)
@pytest.mark.parametrize("kind", [WithArrayInterface, WithDlpack, LikeCupy, LikeNumba])
def test_arrays_of_other_libraries_are_the_same_values(kind: type, array: np.ndarray) -> None:
    before = array.copy()
    assert entry_of(kind(array)) == entry_of(array)
    assert np.array_equal(array, before)


def test_a_devices_array_is_copied_to_the_host_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LikeCupy, "copies", 0)
    entry_of(LikeCupy(GRID))
    assert LikeCupy.copies == 1


def test_a_dtype_that_dlpack_cannot_carry_goes_through_array() -> None:
    assert entry_of(WithoutNumpysDtype(GRID)) == entry_of(GRID)


@pytest.mark.parametrize(
    "foreign", [WithCudaInterface(GRID), WithDlpack(GRID, device=2)], ids=["interface", "dlpack"]
)
def test_a_devices_array_without_its_library_is_refused(
    monkeypatch: pytest.MonkeyPatch, foreign: Any
) -> None:
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    with pytest.raises(InputError, match="lies on a device, and CuPy is not loaded") as caught:
        entry_of(foreign)
    assert "x.cpu()" in caught.value.next_step


@pytest.mark.parametrize(
    "foreign", [WithCudaInterface(GRID), WithDlpack(GRID, device=2)], ids=["interface", "dlpack"]
)
def test_a_devices_array_goes_through_cupy_where_it_is_loaded(
    monkeypatch: pytest.MonkeyPatch, foreign: Any
) -> None:
    stand_in = SimpleNamespace(
        asnumpy=lambda value: value._array.copy(), from_dlpack=lambda value: LikeCupy(value._array)
    )
    monkeypatch.setitem(sys.modules, "cupy", stand_in)
    assert entry_of(foreign) == entry_of(GRID)


def test_what_a_library_says_when_it_cannot_is_one_line() -> None:
    class Broken(WithCudaInterface):
        def get(self) -> np.ndarray:
            raise RuntimeError("cudaErrorIllegalAddress: an illegal access\nand more lines")

    with pytest.raises(InputError) as caught:
        entry_of(Broken(GRID))
    assert caught.value.message.endswith(
        "Broken cannot be read: cudaErrorIllegalAddress: an illegal access"
    )


# --- PyTorch's interface, by a stand-in that allows what PyTorch allows


class TensorLike:
    """``numpy`` refuses a tensor with a gradient or on a device, and bf16, as PyTorch does."""

    layout, is_quantized = "strided", False

    def __init__(self, array: np.ndarray, dtype: str, *, grad: bool = False, device: bool = False):
        self._array, self.dtype, self.grad, self.device = array, dtype, grad, device

    def _with(self, **changes: Any) -> TensorLike:
        made = TensorLike(self._array, self.dtype, grad=self.grad, device=self.device)
        vars(made).update(changes)
        return made

    def detach(self) -> TensorLike:
        return self._with(grad=False)

    def resolve_conj(self) -> TensorLike:
        return self

    def resolve_neg(self) -> TensorLike:
        return self

    def cpu(self) -> TensorLike:
        return self._with(device=False)

    def view(self, dtype: str) -> TensorLike:
        return self._with(dtype=dtype, _array=self._array.view(np.int16))

    def numpy(self) -> np.ndarray:
        if self.grad or self.device:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad or is on a device")
        if self.dtype == "bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self._array


@pytest.fixture
def torch_like(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module ``torch`` that has what the tap uses."""
    module: Any = ModuleType("torch")
    module.Tensor = TensorLike
    module.strided, module.bfloat16, module.int16 = "strided", "bfloat16", "int16"
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


@pytest.mark.usefixtures("torch_like")
def test_a_tensor_with_a_gradient_on_a_device_is_read() -> None:
    tensor = TensorLike(GRID, "float32", grad=True, device=True)
    assert entry_of(tensor) == entry_of(GRID)
    assert (tensor.grad, tensor.device) == (True, True)


@pytest.mark.usefixtures("torch_like")
def test_a_bf16_tensor_is_recorded_as_bf16() -> None:
    bits = np.arange(6, dtype=np.uint16).reshape(2, 3)
    assert entry_of(TensorLike(bits, "bfloat16")) == ("bf16[2,3]", fnv1a64(bits.tobytes()))


@pytest.mark.usefixtures("torch_like")
def test_tensors_without_plain_memory_are_refused() -> None:
    sparse, quantized = (TensorLike(GRID, "float32") for _ in range(2))
    sparse.layout, quantized.is_quantized = "sparse_coo", True  # type: ignore[misc]
    for tensor, step in ((sparse, "give x.to_dense()"), (quantized, "give x.int_repr()")):
        with pytest.raises(InputError) as caught:
            entry_of(tensor)
        assert caught.value.next_step == step


# --- PyTorch itself


def torch_values(torch: Any) -> dict[str, Any]:
    grid = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    names = ("float16", "bfloat16", "float64", "int8", "int16", "int32", "int64", "uint8")
    return {
        "contiguous": grid,
        "transposed": grid.t(),
        "stepped": grid[::2, 1::2],
        "expanded": grid[:1].expand(3, 6),
        "gradient": grid.clone().requires_grad_(),
        "parameter": torch.nn.Parameter(grid.clone()),
        "in a graph": (grid.clone().requires_grad_() * 2),
        "scalar": torch.tensor(1.5),
        "empty": torch.empty(0, 3),
        "bool": grid > 3,
        "negated view": torch.view_as_complex(grid.reshape(12, 2)).conj().imag,
        **{name: grid.to(getattr(torch, name)) for name in names},
        "bf16 transposed": grid.to(torch.bfloat16).t(),
        "bf16 scalar": torch.tensor(1.5, dtype=torch.bfloat16),
    }


def test_torch_tensors_are_the_same_values() -> None:
    torch = pytest.importorskip("torch")
    for name, tensor in torch_values(torch).items():
        before, flags = tensor.detach().clone(), (tensor.requires_grad, tensor.stride())
        plain = before.contiguous()
        bits = plain.resolve_neg()
        bits = bits.view(torch.int16) if bits.dtype == torch.bfloat16 else bits
        kind, digest = entry_of(tensor)
        assert digest == fnv1a64(tensor_bytes(bits.numpy())), name
        assert kind.startswith("bf16") == (tensor.dtype == torch.bfloat16), name
        assert torch.equal(tensor.detach(), before), name
        assert (tensor.requires_grad, tensor.stride()) == flags, name


def test_torch_tensors_through_dlpack_are_the_same_values() -> None:
    torch = pytest.importorskip("torch")

    class Exporter:
        def __init__(self, tensor: Any) -> None:
            self._tensor = tensor

        def __dlpack__(self, **options: Any) -> Any:
            return self._tensor.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self._tensor.__dlpack_device__()

    grid = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    for tensor in (grid, grid.t(), grid[::2, 1::2], grid.to(torch.float16), grid.to(torch.int8)):
        assert entry_of(Exporter(tensor)) == entry_of(tensor)
    with pytest.raises(InputError, match="cannot be read"):
        entry_of(Exporter(grid.to(torch.bfloat16)))


def test_torch_tensors_that_cannot_be_compared_are_refused() -> None:
    torch = pytest.importorskip("torch")
    plain = torch.ones(2)
    for tensor in (
        plain.to(torch.complex64),
        plain.to_sparse(),
        torch.ones(2, device="meta"),
        plain.to(torch.float8_e4m3fn),
    ):
        with pytest.raises(InputError) as caught:
            entry_of(tensor)
        assert caught.value.message.startswith("t0_l0_x: ")
        assert "\n" not in caught.value.message
    assert caught.value.message == "t0_l0_x: torch.Tensor of torch.float8_e4m3fn cannot be compared"
    assert caught.value.next_step == "give its bits: x.view(torch.uint8)"
