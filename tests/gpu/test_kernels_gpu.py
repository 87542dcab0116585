"""Kernels on a real device at the shapes of two models, byte for byte against the CPU's ops."""

from __future__ import annotations

import pytest

from parity.protocol import EngineSettings
from parity.variants import variant_mask
from parity_cuda.cupy_backend import CupyBackend
from tests.engines.cuda.op_runner import OpRunner
from tests.engines.cuda.shape_cases import Named, check_shape, real, small

pytestmark = pytest.mark.gpu

CASES = [*small(), *real()]
KEYS = [case for case in CASES if case[0].startswith("attention")]
SPLIT = variant_mask(["split_keys"])
DEVICE_NAN = 0x7FFFFFFF  # contract 1.10


@pytest.fixture(scope="module")
def device() -> OpRunner:
    """The device with the kernels as they ship."""
    return OpRunner(CupyBackend(EngineSettings()), "cuda")


@pytest.mark.parametrize("case", CASES, ids=[f"{op} {label}" for op, label, *_ in CASES])
def test_the_device_has_the_cpus_bytes(device: OpRunner, case: Named) -> None:
    check_shape(case, device.run_for, nan=DEVICE_NAN)


@pytest.mark.parametrize("case", KEYS, ids=[f"{op} {label}" for op, label, *_ in KEYS])
def test_keys_in_parts_have_the_cpus_bytes(device: OpRunner, case: Named) -> None:
    check_shape(
        case,
        lambda op, args, specs: device.run_for(op, args, specs, SPLIT),
        SPLIT,
        nan=DEVICE_NAN,
    )
