"""A cache folder of our own, modules built once, the schedules every kernel must stand."""

import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from parity_cuda.emu import EmuModule, Schedule, build_module
from tests.engines.emu.stress_builds import Builds

CUDA = Path(__file__).parent / "cuda"
SCHEDULES = {
    "ascending": Schedule("ascending"),
    "descending": Schedule("descending"),
    "shuffled-1": Schedule("shuffled", seed=1),
    "shuffled-2": Schedule("shuffled", seed=2),
    "shuffled-3-on-2-threads": Schedule("shuffled", seed=3, threads=2),
    "ascending-on-3-threads": Schedule("ascending", threads=3),
}

Load = Callable[..., EmuModule]


@pytest.fixture(scope="session")
def cache_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A temporary folder of the session; xdist's workers share it."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "emu-cache"


@pytest.fixture(scope="module", autouse=True)
def own_cache(builds: Builds) -> Iterator[None]:
    """Built where the stress tests build, so that a unit is compiled for one of them alone; tests
    elsewhere build into another folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARITY_CACHE", str(builds.kept))
        yield


@pytest.fixture(scope="session")
def builds(request: pytest.FixtureRequest, cache_base: Path) -> Builds:
    """Modules of the stress tests; with pytest's cache they outlive the session."""
    cache = getattr(request.config, "cache", None)
    cache_base.mkdir(exist_ok=True)
    return Builds(cache.mkdir("emu") if cache else cache_base, cache_base)


@pytest.fixture(scope="session")
def cuda_text() -> Callable[[str], str]:
    """Give the text of a file beside this one."""
    return lambda name: (CUDA / name).read_text()


@pytest.fixture(scope="session")
def load(cuda_text: Callable[[str], str]) -> Load:
    """Build and load files of ``cuda/`` by name, with flags to add."""

    @cache
    def loaded(*names: str, extra_flags: tuple[str, ...] = ()) -> EmuModule:
        sources = {name: cuda_text(name) for name in names}
        return EmuModule(build_module(sources, extra_flags=extra_flags))

    return loaded


@pytest.fixture(params=SCHEDULES.values(), ids=SCHEDULES.keys())
def schedule(request: pytest.FixtureRequest) -> Schedule:
    """One schedule at a time."""
    return request.param
