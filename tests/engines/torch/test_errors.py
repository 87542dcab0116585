"""What HfEngine says where something is missing: a package, a device, memory."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from parity.errors import NotRunError
from parity.model.memory import DEVICE, HOST, Room, check_rooms, size_text, weight_bytes
from parity.protocol import EngineSettings
from parity_torch import HfEngine, loading, memory, requirements
from parity_torch.options import Options, read_options
from tests.engines.torch.engines import engine, opened, same_bits

INSTALL = "run: pip install 'parity-harness[torch]'"


@pytest.mark.parametrize("package", ["torch", "transformers", "ml_dtypes"])
def test_a_missing_package_is_named_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for call in (
        lambda: HfEngine(EngineSettings("library")),
        lambda: opened("dense-tiny"),
    ):
        with pytest.raises(NotRunError) as told:
            call()
        assert told.value.message == f"hf: {package} is not installed"
        assert (told.value.next_step, told.value.exit_status) == (INSTALL, 3)


def test_a_package_that_cannot_start_is_named_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(name: str) -> Any:
        raise OSError("libtorch_cpu.so: cannot open shared object file. Really\nmore lines")

    monkeypatch.setattr(requirements, "import_module", broken)
    with pytest.raises(NotRunError) as told:
        HfEngine(EngineSettings("library"))
    assert told.value.message == (
        "hf: torch cannot be imported: libtorch_cpu.so: cannot open shared object file"
    )


def test_the_class_is_there_without_torch() -> None:
    """parity engines lists hf, and a spec is read, where torch is not installed."""
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['transformers'] = None\n"
        "from parity.registry import engine_class\n"
        "from parity.spec import runnable\n"
        "assert engine_class('hf').name == 'hf'\n"
        "print(runnable('hf:dense-tiny,dtype=bf16', '--engine').model)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "dense-tiny\n", "")


def _cuda_build(monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", version)
    monkeypatch.setattr(torch.version, "hip", None)


def test_device_cuda_on_a_build_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    _cuda_build(monkeypatch, None)
    with pytest.raises(NotRunError) as told:
        HfEngine(EngineSettings("library", options={"device": "cuda"}))
    assert told.value.message == (
        f"hf: device=cuda: torch {torch.__version__} is built without CUDA"
    )
    assert told.value.next_step == "install a CUDA build of torch, or give device=cpu"


def test_device_cuda_on_a_machine_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver() -> None:
        raise RuntimeError("Found no NVIDIA driver on your system. Please check\nand more")

    _cuda_build(monkeypatch, "13.0")
    monkeypatch.setattr(torch.cuda, "init", no_driver)
    with pytest.raises(NotRunError) as told:
        HfEngine(EngineSettings("library", options={"device": "cuda"}))
    assert told.value.message == (
        f"hf: device=cuda: torch {torch.__version__} finds no device: "
        "Found no NVIDIA driver on your system"
    )
    assert (told.value.next_step, told.value.exit_status) == (
        *("check nvidia-smi, or give device=cpu", 3),
    )


def _free(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda: free)


def test_a_model_without_room_is_refused_before_it_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = opened("dense-tiny")
    needed = weight_bytes(model) + 2 * 4 * 64 * 2 * 32 * 4  # K and V: layers, rows, heads, width
    _free(monkeypatch, needed * 3 // 4)
    made = HfEngine(EngineSettings("library"))
    monkeypatch.setattr(type(model), "tensor", _not_asked)
    with pytest.raises(NotRunError) as told:
        made.load(model, 64)
    assert told.value.message == (
        f"hf: dense-tiny needs {size_text(needed)} of host memory "
        f"({size_text(weight_bytes(model))} of weights, 0.1 MB of KV cache and state), "
        f"{size_text(needed * 3 // 4)} are free"
    )
    assert told.value.next_step == f"dtype=bf16 needs {size_text(needed // 2)}"
    monkeypatch.undo()
    _free(monkeypatch, needed * 3 // 4)
    half = HfEngine(EngineSettings("library", options={"dtype": "bf16"}))
    half.load(model, 64)
    assert half.step(3).logits.shape == (512,)


def _not_asked(*_: Any) -> None:
    raise AssertionError("a tensor was made of a model that does not fit")


def test_where_nothing_fits_no_dtype_is_recommended(monkeypatch: pytest.MonkeyPatch) -> None:
    model = opened("dense-tiny")
    _free(monkeypatch, 1000)
    with pytest.raises(NotRunError) as told:
        HfEngine(EngineSettings("library")).load(model, 64)
    assert told.value.next_step == "the preset moe-tiny needs 1.4 MB"


def test_two_sides_are_refused_together_with_what_would_fit() -> None:
    model = opened("dense-tiny")
    each = weight_bytes(model)
    rooms = [("hf:a", Room(HOST, 3 * each, 4, "dtype=bf16")), ("cpu", Room(HOST, 3 * each))]
    check_rooms(rooms, model, 0)
    small = [(name, Room(HOST, each * 9 // 5, room.item, room.smaller)) for name, room in rooms]
    with pytest.raises(NotRunError) as told:
        check_rooms(small, model, 0)
    assert "hf:a and cpu: dense-tiny needs 2 x" in told.value.message
    assert told.value.next_step == f"dtype=bf16 needs {size_text(each // 2 + each)}"
    apart = [("hf", Room(DEVICE, each * 2, 4, "dtype=bf16")), ("cpu", Room(HOST, each * 2))]
    check_rooms(apart, model, 0)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
        MemoryError(),
    ],
)
def test_memory_that_ends_in_a_forward_says_what_would_fit(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    made = engine("dense-tiny")
    first = made.step(5).logits
    half = sum(p.nbytes for p in made.module.parameters()) // 2

    def planted(*_: Any, **__: Any) -> None:
        raise error

    _free(monkeypatch, 123_000_000)
    with monkeypatch.context() as patch:
        patch.setattr(made.module.model.layers[2].mlp, "forward", planted)
        with pytest.raises(NotRunError) as told:
            made.step_rows((1, 2, 3))
    assert told.value.message == (
        "hf: 3 tokens in one forward, 1 before them: out of host memory, 123.0 MB free"
    )
    assert told.value.next_step == (
        f"what takes less: dtype=bf16: {size_text(half)} of weights; fewer tokens at once "
        "(prefill=steps, a smaller --m)"
    )
    assert told.value.exit_status == 3
    assert same_bits(made.step(5).logits, first)  # the sequence was forgotten, half written


def test_memory_that_ends_while_a_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB")

    monkeypatch.setattr(loading, "fill", planted)
    made = HfEngine(EngineSettings("library", options={"dtype": "bf16"}))
    _free(monkeypatch, 123_000_000)
    with pytest.raises(NotRunError) as told:
        made.load(opened("dense-tiny"), 64)
    assert told.value.message == (
        "hf: loading dense-tiny f32 seed 7: out of host memory, 123.0 MB free"
    )


def test_any_other_error_of_a_forward_is_not_taken_for_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = engine("dense-tiny")

    def planted(*_: Any, **__: Any) -> None:
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(made.module.model.layers[2].mlp, "forward", planted)
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        made.step(1)


def test_a_device_that_is_full_recommends_the_host() -> None:
    told = memory._would_fit(Options("bf16", "cuda"), None)
    assert told == (
        "what takes less: fewer tokens at once (prefill=steps, a smaller --m); device=cpu"
    )


def test_options_are_read_as_typed() -> None:
    given = {"dtype": "f16", "attn": "eager", "invariant": "on", "prefill": "steps", "threads": "2"}
    assert read_options(given) == Options("f16", "cpu", "eager", True, "steps", 2)
    assert read_options({}) == Options()
