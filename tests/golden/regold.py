"""The golden digests of synthetic models: ``python tests/golden/regold.py`` rewrites them.

It prints what changed; nothing else writes ``model_digests.json``. A change of the generator means
that every dump made before it is of another model: say so in the changelog.
"""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

import numpy as np

from parity.dump import TensorType
from parity.fnv import fnv1a64_array, hex16
from parity.model.model import SyntheticModel, model_digest, synthetic

PATH = Path(__file__).parent / "model_digests.json"
FORMAT = {"format": "parity-model-digests", "version": 1, "contract": "8"}
SEED = 7
DETAILED = "moe-tiny q4"  # the model whose every tensor is listed
MODELS = (
    *(("moe-tiny", "q4"), ("moe-tiny", "f32"), ("dense-tiny", "q4"), ("dense-tiny", "f32")),
    *(("hybrid-tiny", "q4"), ("moe-48", "q4"), ("next-tiny", "q4")),
)
STORED = {"float32": "f32", "uint16": "f16", "uint8": "u8"}


def digests(model: SyntheticModel) -> dict[str, tuple[TensorType, int]]:
    """Type and digest of every tensor, as engines tell them."""
    made = ((name, model.tensor(name)) for name in model.names())
    return {name: (_kind(array), fnv1a64_array(array)) for name, array in made}


def _kind(array: np.ndarray) -> TensorType:
    return TensorType(STORED[array.dtype.name], array.shape)


def goldens() -> dict[str, Any]:
    """What the generator gives today."""
    models: dict[str, dict[str, str]] = {}
    tensors: dict[str, str] = {}
    for name, weights in MODELS:
        model = synthetic(name, SEED, weights)
        found = digests(model)
        lines = {tensor: f"{kind} {hex16(value)}" for tensor, (kind, value) in found.items()}
        text = "".join(f"{tensor} {line}\n" for tensor, line in lines.items())
        models[f"{name} {weights}"] = {
            # The configuration's text is part of the first, so a new setting changes it alone.
            "model": hex16(model_digest(model.config, found)),
            "tensors": hex16(fnv1a64_array(np.frombuffer(text.encode(), np.uint8))),
        }
        if f"{name} {weights}" == DETAILED:
            tensors = lines
    return {**FORMAT, "seed": SEED, "models": models, DETAILED: tensors}


def written(made: dict[str, Any]) -> str:
    """The file's text."""
    return json.dumps(made, indent=1) + "\n"


def changes(stored: str, made: str) -> list[str]:
    """Unified difference lines without context, or none."""
    sides = (stored.splitlines(), made.splitlines())
    return list(difflib.unified_diff(*sides, "stored", "made", n=0, lineterm=""))


def main() -> None:
    """Rewrite the file and print what changed."""
    stored = PATH.read_text(encoding="utf-8") if PATH.exists() else ""
    made = written(goldens())
    PATH.write_text(made, encoding="utf-8", newline="\n")
    print("\n".join(changes(stored, made)) or "nothing changed")


if __name__ == "__main__":
    main()
