"""The driver's launch that may begin early: what is handed to it lies where cuda.h says."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parity.errors import ParityBug
from parity_cuda import programmatic
from parity_cuda.programmatic import Programmatic, open_programmatic


class Driver:
    """A libcuda whose launch notes the bytes that it is given."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.config = self.attribute = b""
        self.given: list[int] = []
        self.cuLaunchKernelEx = self.Launch(self)

    class Launch:
        """The one symbol."""

        argtypes: Any = ()
        restype: Any = None

        def __init__(self, driver: Driver) -> None:
            self.driver = driver

        def __call__(self, config: Any, function: int, pointers: Any, extra: None) -> int:
            assert extra is None
            driver = self.driver
            driver.config = ctypes.string_at(ctypes.addressof(config._obj), 56)
            (at,) = np.frombuffer(driver.config[40:48], np.uint64).tolist()
            driver.attribute = ctypes.string_at(at, 72)
            values = [ctypes.string_at(pointer, 8) for pointer in pointers]
            driver.given = [function, *(int.from_bytes(value, "little") for value in values)]
            return driver.status


def device(address: int) -> Any:
    """An array of CuPy at that address."""
    return SimpleNamespace(data=SimpleNamespace(ptr=address))


def words(raw: bytes) -> list[int]:
    return np.frombuffer(raw, np.uint32).tolist()


def test_a_launch_lies_where_the_driver_reads_it() -> None:
    driver = Driver()
    arguments = [device(0x7F00_0000_1230), np.int32(-2), np.float32(1.5), np.int64(1 << 40)]
    Programmatic(driver).launch(77, 0x5550, (132, 4), (32, 8), arguments, 4096)
    # CUlaunchConfig: gridDim, blockDim, sharedMemBytes, (pad), hStream, attrs, numAttrs.
    assert words(driver.config[:28]) == [132, 4, 1, 32, 8, 1, 4096]
    assert words(driver.config[32:40]) == [0x5550, 0]
    assert words(driver.config[48:52]) == [1]
    # CUlaunchAttribute: id, pad[4], then the value: programmaticStreamSerializationAllowed.
    assert words(driver.attribute[:4]) + words(driver.attribute[8:12]) == [6, 1]
    assert driver.given == [77, 0x7F00_0000_1230, 0xFFFF_FFFE, 0x3FC0_0000, 1 << 40]


def test_a_refused_launch_is_told() -> None:
    with pytest.raises(ParityBug, match="cuda: cuLaunchKernelEx gives 701"):
        Programmatic(Driver(701)).launch(77, 0, (1,), (32,), [], 0)


def test_what_keeps_launches_from_overlapping(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    assert open_programmatic(80) == "sm_80 has none"
    monkeypatch.setattr(programmatic.ctypes, "CDLL", missing)
    assert open_programmatic(90) == "the driver has none"
    monkeypatch.setattr(programmatic.ctypes, "CDLL", lambda _name: SimpleNamespace())
    assert open_programmatic(90) == "the driver has none"
    monkeypatch.setattr(programmatic.ctypes, "CDLL", lambda _name: Driver())
    assert isinstance(open_programmatic(120), Programmatic)
