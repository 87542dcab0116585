"""Make the worked example of docs/torch.md anew, and write its output into the page. By hand:

    pip install 'parity-harness[torch]'
    python scripts/torch_example.py --device cpu
    python scripts/torch_example.py --device cuda

Each command of COMMANDS runs on this machine; what it prints replaces the part of the page between
the two comments that name the device, with date, versions and machine above it. Lines of time and
speed are left out: they are no part of what is shown. ``--model``: what runs, by default the preset
dense-tiny on a CPU and ``wide`` on a device, a folder that holds CONFIG and no weights. Exit status
1, with the page as it was, where a command ends otherwise than same (0) or diverged (1).
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import re
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "torch.md"
MODELS = {"cpu": "dense-tiny", "cuda": "wide"}
# A model whose products are large enough for a device to choose between kernels.
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    **{"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 4},
    **{"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 64},
    **{"vocab_size": 2048, "max_position_embeddings": 1024, "tie_word_embeddings": False},
    **{"rms_norm_eps": 1e-6, "rope_theta": 1_000_000.0, "hidden_act": "silu"},
}
ROWS = "isodiff --engine {engine} --m 5 --pos 33:33"
BATCH = "isodiff --batch --engine {engine} --m 2,3 --pos 33"
DIFF = "diff --ref {engine} --dut {other} --n 2"
COMMANDS = (
    ("M = 1 against M = 5, f32", ROWS, ("",)),
    ("M = 1 against M = 5, bf16", ROWS, (",dtype=bf16",)),
    ("M = 1 against M = 5, f16", ROWS, (",dtype=f16",)),
    ("Eager against SDPA", DIFF, (",attn=eager", ",attn=sdpa")),
    ("f32 against bf16", f"{DIFF} --profile", ("", ",dtype=bf16")),
    ("Batches of 2 and 3", BATCH, (",dtype=f16",)),
)
TIMED = re.compile(r"  (time|speed) ")
DONE = (0, 1)  # same, diverged


def main() -> int:
    """Run the commands and rewrite the page's part for this device."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--device", choices=tuple(MODELS), default="cpu")
    parser.add_argument("--model", default="", help="a preset or a folder (default: see above)")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--jobs", type=int, default=1, help="commands that run side by side")
    given = parser.parse_args()
    model = given.model or MODELS[given.device]
    with tempfile.TemporaryDirectory() as folder:
        if model == "wide":
            wide = Path(folder) / "wide"
            wide.mkdir()
            (wide / "config.json").write_text(json.dumps(CONFIG, indent=1))
            model = "./wide"
        parts = [machine(given.device, model)]
        with ThreadPoolExecutor(given.jobs) as pool:
            asked = (partial(run, *each[1:], model, given.device, folder) for each in COMMANDS)
            texts = list(pool.map(lambda ask: ask(), asked))
        for (title, _, _), text in zip(COMMANDS, texts, strict=True):
            if text is None:
                return 1
            parts.append(f"#### {title}\n\n```console\n{text}```\n")
    rewrite(given.page, given.device, "\n".join(parts))
    return 0


def machine(device: str, model: str) -> str:
    """Date, versions and machine, as a sentence."""
    import torch
    import transformers

    import parity

    if device == "cuda":
        where = f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"
    else:
        where = f"{cpu_name()}, {torch.get_num_threads()} threads of torch"
        where += f", {torch.backends.cpu.get_cpu_capability()}"
    date = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    return f"{date}: {where}; parity {parity.__version__}, {versions}; model `{model}`.\n"


def cpu_name() -> str:
    """The processor as Linux names it, else as Python does."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1] if found else platform.processor() or platform.machine()


def run(command: str, options: tuple[str, ...], model: str, device: str, folder: str) -> str | None:
    """The command line and what it prints; None, and what is wrong on stderr, where it fails."""
    sides = [f"hf:{model},device={device}{option}" for option in options]
    words = shlex.split(command.format(engine=sides[0], other=sides[-1]))
    done = subprocess.run(
        [sys.executable, "-m", "parity", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    line = shlex.join(["parity", *words])
    if done.returncode not in DONE:
        print(f"{line}: exit status {done.returncode}\n{done.stderr}", file=sys.stderr)
        return None
    return f"$ {line}\n{untimed(done.stdout)}"


def untimed(text: str) -> str:
    """Without the facts of time and speed and the lines they continue on."""
    kept, timed = [], False
    for line in text.splitlines():
        if TIMED.match(line):
            timed = True
        elif not (timed and line.startswith(" " * 11)):
            timed = False
            kept.append(line.rstrip())
    return "\n".join(kept) + "\n"


def rewrite(page: Path, device: str, text: str) -> None:
    """Put ``text`` between the comments of ``device``."""
    begin, end = (f"<!-- worked example, {device}: {word} -->\n" for word in ("begin", "end"))
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        sys.exit(f"{page}: no {begin.strip()} with its end; put both where the output goes")
    page.write_text(f"{before}{begin}{text}{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
