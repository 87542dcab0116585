"""Load exported presets in llama.cpp and set its logits beside ours. Run by hand, not in CI:

    pip install llama-cpp-python            # builds llama.cpp for the CPU
    python scripts/llama_cpp_check.py [--weights f32|q4] [--quantize] [PRESET ...]

Each preset is exported (``export_gguf``), loaded by llama.cpp with an f32 KV cache and without
flash attention, and fed 24 tokens of the prompt of seed 7, one at a time, as is our cpu engine with
the preset itself. llama.cpp adds in other orders, and multiplies Q4_0 by activations rounded to 8
bits, so its bits are not ours; a wrong name, norm or order of heads gives other logits altogether.
With ``--weights f32`` the norm of the difference must stay under 1e-4 of the norm of our logits and
every greedy token must be ours; with q4 the limit is 0.3, of the norm alone. Each hybrid is written
once more with a planted fault, its value heads moved the wrong way round: that file must be further
off than 0.5, or the check would prove nothing. ``--quantize`` lets llama.cpp store each exported
file as F16, BF16, Q8_0, Q4_1, Q6_K and Q4_0 (with the mixtures its tool makes), and our engine runs
what ``open_gguf`` reads of it, with the same limit as q4. Exit status 1 when one of this does not
hold.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import tempfile
from pathlib import Path

import llama_cpp
import numpy as np

from parity.model.generator import prompt_tokens
from parity.model.gguf import export, export_gguf, names, open_gguf
from parity.model.model import Model, synthetic
from parity.protocol import EngineSettings, Plan
from parity.registry import engine_class

PRESETS = ("dense-tiny", "moe-tiny", "moe-48", "hybrid-tiny", "hybrid-64", "next-tiny")
SEED, POSITIONS = 7, 24
LIMITS = {"f32": 1e-4, "q4": 0.3}
FAR_OFF = 0.5
F32 = 0  # ggml's number of the type
# llama.cpp's numbers of the mixtures that its tool makes.
MIXTURES = {"F16": 1, "BF16": 32, "Q8_0": 7, "Q4_1": 3, "Q6_K": 18, "Q4_0": 2}


def ours(model: Model, tokens: list[int]) -> np.ndarray:
    """Logits of our cpu engine, float32[positions, vocab]."""
    engine = engine_class("cpu")(EngineSettings())  # type: ignore[call-arg]
    engine.load(model, len(tokens))
    return np.stack([engine.step(token, Plan(fields=())).logits for token in tokens])


def theirs(path: Path, tokens: list[int], vocab: int) -> np.ndarray:
    """Logits of llama.cpp, float32[positions, vocab]."""
    loading = llama_cpp.llama_model_default_params()
    loading.n_gpu_layers = 0
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), loading)
    if not model:
        raise SystemExit(f"{path}: llama.cpp does not load it")
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx, settings.n_threads, settings.n_threads_batch = 64, 1, 1
    settings.type_k = settings.type_v = F32
    settings.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    context = llama_cpp.llama_init_from_model(model, settings)
    rows = []
    for token in tokens:
        one = (llama_cpp.llama_token * 1)(token)
        if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(one, 1)):
            raise SystemExit(f"{path}: llama.cpp does not run it")
        logits = llama_cpp.llama_get_logits_ith(context, -1)
        rows.append(np.ctypeslib.as_array(logits, (vocab,)).copy())
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return np.stack(rows)


def compare(model: Model, architecture: str, path: Path, ref: np.ndarray) -> tuple[float, int]:
    """Norm of the difference over the norm of our logits, and positions with our greedy token."""
    export_gguf(model, path, architecture)
    tokens = prompt_tokens(SEED, POSITIONS, model.config.vocab)
    dut = theirs(path, tokens, model.config.vocab)
    same = int((ref.argmax(axis=1) == dut.argmax(axis=1)).sum())
    return float(np.linalg.norm(ref - dut) / np.linalg.norm(ref)), same


def check(name: str, weights: str, folder: Path) -> bool:
    """One preset in every architecture that can hold it; whether all is as it must be."""
    model = synthetic(name, SEED, weights)
    ref = ours(model, prompt_tokens(SEED, POSITIONS, model.config.vocab))
    own = export._architecture(model.config)
    good = True
    for architecture in (own, "qwen35moe") if own == "qwen3next" else (own,):
        path = folder / f"{name}-{weights}-{architecture}.gguf"
        apart, same = compare(model, architecture, path, ref)
        fine = apart < LIMITS[weights] and (same == POSITIONS or weights == "q4")
        print(f"{path.name:38} apart {apart:.2e}, {same} of {POSITIONS} greedy")
        good = good and fine
        key_heads, value_heads, _, _ = model.config.gdn
        if architecture not in names.TILED or value_heads == 2 * key_heads == 4:
            continue  # with 2 and 4 heads the wrong way is the right one
        right = names.tiled
        names.tiled = lambda config: np.argsort(right(config))  # noqa: B023
        try:
            apart, same = compare(model, architecture, folder / f"wrong-{path.name}", ref)
        finally:
            names.tiled = right
        print(f"{'  heads moved the wrong way':38} apart {apart:.2e}, {same} of {POSITIONS} greedy")
        good = good and apart > FAR_OFF
    return good


def check_quantized(name: str, folder: Path) -> bool:
    """A preset's f32 file in each mixture: llama.cpp's logits beside ours of the same file."""
    exported = folder / f"{name}.gguf"
    architecture = export_gguf(synthetic(name, SEED, "f32"), exported)
    good = True
    for mixture, number in MIXTURES.items():
        path = folder / f"{name}-{architecture}-{mixture}.gguf"
        asked = llama_cpp.llama_model_quantize_default_params()
        asked.ftype, asked.nthread = number, 1
        stated = str(exported).encode(), str(path).encode()
        if llama_cpp.llama_model_quantize(*stated, ctypes.byref(asked)):
            raise SystemExit(f"{path}: llama.cpp does not write it")
        model = open_gguf(path)
        tokens = prompt_tokens(SEED, POSITIONS, model.config.vocab)
        ref, dut = ours(model, tokens), theirs(path, tokens, model.config.vocab)
        apart = float(np.linalg.norm(ref - dut) / np.linalg.norm(ref))
        print(f"{path.name:38} apart {apart:.2e}; {model.source.stored}")
        good = good and apart < LIMITS["q4"]
    return good


def main() -> int:
    """Check the presets that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", choices=tuple(LIMITS), default="f32")
    parser.add_argument("--quantize", action="store_true")
    parser.add_argument("presets", nargs="*", default=list(PRESETS))
    asked = parser.parse_args()
    quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    print(f"llama-cpp-python {llama_cpp.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        results = [check(name, asked.weights, Path(folder)) for name in asked.presets]
        if asked.quantize:
            results += [check_quantized(name, Path(folder)) for name in asked.presets]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
