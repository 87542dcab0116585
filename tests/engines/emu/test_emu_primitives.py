"""Each primitive of the shim on odd bit patterns; NaN payloads are a class of their own.

Which payload an x86 operation keeps depends on the order of its operands, which a compiler may
swap; the device gives 0x7fffffff anyway (contract 1.10).
"""

import ctypes
import ctypes.util
from collections import Counter

import numpy as np
import pytest

from parity_cuda.emu import EmuModule, build_module
from tests.engines.emu.primitives import DTYPES, Array, Op, all_ops, arguments, kernels, wrapped
from tests.engines.emu.reference import ASCENDING

OPS = all_ops()


@pytest.fixture(scope="module")
def module() -> EmuModule:
    return EmuModule(build_module({"primitives.cu": kernels(OPS)}))


def compute(module: EmuModule, number: int, op: Op, given: list[Array]) -> Array:
    result = np.empty(len(given[0]), DTYPES[op.gives])
    grid = (-(-len(result) // 128),)
    args = (*given, result, np.int32(len(result)))
    module.launch(f"op_{number}", grid, (128,), args, schedule=ASCENDING)
    return result


def different(got: Array, wanted: Array) -> Array:
    """Positions whose bits differ, two NaNs left out."""
    unsigned = np.dtype(f"u{got.itemsize}")
    differ = got.view(unsigned) != wanted.view(unsigned)
    if got.dtype.kind == "f":
        differ &= ~(np.isnan(got) & np.isnan(wanted))
    return np.flatnonzero(differ)


def wanted_of(op: Op, given: list[Array]) -> Array:
    with np.errstate(all="ignore"):
        wanted = op.reference(*given)
    if wanted.dtype == object:
        return wrapped(wanted, op.gives)
    return np.ascontiguousarray(wanted.astype(DTYPES[op.gives]))


@pytest.mark.parametrize(
    "number", range(len(OPS)), ids=[f"{op.takes}-{op.gives} {op.expression}" for op in OPS]
)
def test_primitive(module: EmuModule, number: int) -> None:
    op = OPS[number]
    given = arguments(op)
    got, wanted = compute(module, number, op, given), wanted_of(op, given)
    bad = different(got, wanted)
    first = [column[bad[:1]] for column in (*given, got, wanted)]
    assert len(wanted) > 3000
    assert not len(bad), f"{len(bad)} of {len(got)} differ; first: arguments, got, wanted {first}"


def test_red_one_wrong_bit_is_found(module: EmuModule) -> None:
    given = arguments(OPS[0])
    wanted = compute(module, 0, OPS[0], given)
    wrong = wanted.copy()
    wrong.view(np.uint32)[17] ^= 1
    assert different(wrong, wanted).tolist() == [17]
    zero = np.zeros(1, np.float32)
    assert different(zero, -zero).tolist() == [0]


def test_every_op_is_there_once() -> None:
    counts = Counter((op.expression, op.takes) for op in OPS)
    assert not [name for name, count in counts.items() if count > 1]
    assert len(OPS) > 150


def test_vector_types_have_cudas_layout() -> None:
    layout = {"char2": (2, 2), "uchar4": (4, 4), "short4": (8, 8), "ushort2": (4, 4)}
    layout |= {"int2": (8, 8), "int4": (16, 16), "uint4": (16, 16), "float2": (8, 8)}
    layout |= {"float3": (12, 4), "float4": (16, 16), "double2": (16, 16), "longlong2": (16, 16)}
    checks = "".join(
        f"static_assert(sizeof({name}) == {size} && alignof({name}) == {alignment}, {name!r});\n"
        for name, (size, alignment) in layout.items()
    ).replace("'", '"')
    text = checks + 'extern "C" __global__ void k(float4* v) { *v = make_float4(1, 2, 3, 4); }'
    v = np.empty(4, np.float32)
    module = EmuModule(build_module({"vectors.cu": text}))
    module.launch("k", (1,), (1,), (v,), schedule=ASCENDING)
    assert v.tolist() == [1, 2, 3, 4]


STAND_INS = {"expf": "f", "logf": "f", "sinf": "f", "cosf": "f", "exp": "d"}


def test_stand_ins_are_the_c_librarys() -> None:
    """Contract 5: rsqrt and libm_* of `emu` are labelled stand-ins."""
    ops = [Op(f"emu_standin_{name}(a)", t, t, np.abs) for name, t in STAND_INS.items()]
    ops.append(Op("emu_standin_rsqrtf(a)", "f", "f", np.abs))
    module = EmuModule(build_module({"stand_ins.cu": kernels(ops)}))
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    x = np.random.default_rng(5).uniform(0.0, 50.0, 500)
    for number, (name, t) in enumerate(STAND_INS.items()):
        function, kind = libm[name], ctypes.c_float if t == "f" else ctypes.c_double
        function.argtypes, function.restype = (kind,), kind
        given = x.astype(DTYPES[t])
        wanted = np.array([function(value) for value in given.tolist()], DTYPES[t])
        assert compute(module, number, ops[number], [given]).tobytes() == wanted.tobytes()
    given = x.astype(np.float32)
    wanted = (1.0 / np.sqrt(given.astype(np.float64))).astype(np.float32)
    assert compute(module, len(ops) - 1, ops[-1], [given]).tobytes() == wanted.tobytes()
