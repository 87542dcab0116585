"""The blocks that no test executes, each by its page and first line, with the reason."""

GPU = "needs an NVIDIA GPU"
NVCC = "is compiled by tests/engines/cuda/test_header_compiles.py"
MINUTES = "takes minutes"
INSTALLS = "installs packages"
BITS = "shows the bits of the machine that the page names"

_REASONS = {
    GPU: {
        "docs/gpu.md": (
            "$ parity diff --dut cuda --model moe-48 --n 4",
            "$ parity ladder --engine cuda",
            "$ parity isodiff --engine cuda --model qwen3.5-27b --pos 3:3 --m 2..8",
            "$ parity isolate --ref cpu --dut cuda --model moe-48 --only placement",
            "$ parity stable --engine cuda",
        ),
        "docs/models.md": ("$ parity diff --model big.gguf --dut cuda --tokens 1,2,3 --n 1",),
        "docs/howto/cuda-graph-differs.md": (
            'python: """Three tokens on a device, op by op ("eager"), or captured once and replayed'
            ' ("graph")."""',
            "$ python decode_gpu.py eager eager_gpu.dump",
            "$ parity compare eager_gpu.dump graph_gpu.dump",
        ),
        "docs/torch.md": (
            "$ parity isodiff --engine hf:./wide,device=cuda --m 5 --pos 33:33",
            "$ parity isodiff --engine hf:./wide,device=cuda,dtype=bf16 --m 5 --pos 33:33",
            "$ parity isodiff --engine hf:./wide,device=cuda,dtype=f16 --m 5 --pos 33:33",
            "$ parity diff --ref hf:./wide,device=cuda,attn=eager"
            " --dut hf:./wide,device=cuda,attn=sdpa --n 2",
            "$ parity diff --ref hf:./wide,device=cuda"
            " --dut hf:./wide,device=cuda,dtype=bf16 --n 2 --profile",
            "$ parity isodiff --batch --engine hf:./wide,device=cuda,dtype=f16 --m 2,3 --pos 33",
        ),
    },
    NVCC: {"docs/header.md": ('cuda: #include "parity_dump.h"',)},
    MINUTES: {
        "docs/capture.md": (
            "$ python tests/bench/capture.py --engine cpu --model moe-48 --rounds 12",
        ),
        "docs/stress.md": ("$ just stress",),
        "docs/torch.md": ("$ python scripts/torch_example.py --device cpu",),
        "docs/study.md": (
            "$ just study",
            "$ just study --tools PYTHON",
        ),
    },
    BITS: {
        "docs/torch.md": (
            "$ parity diff --ref hf:dense-tiny --dut cpu --weights f32",
            "$ parity isodiff --engine hf:dense-tiny,device=cpu --m 5 --pos 33:33",
            "$ parity isodiff --engine hf:dense-tiny,device=cpu,dtype=bf16 --m 5 --pos 33:33",
            "$ parity isodiff --engine hf:dense-tiny,device=cpu,dtype=f16 --m 5 --pos 33:33",
            "$ parity diff --ref hf:dense-tiny,device=cpu,attn=eager"
            " --dut hf:dense-tiny,device=cpu,attn=sdpa --n 2",
            "$ parity diff --ref hf:dense-tiny,device=cpu"
            " --dut hf:dense-tiny,device=cpu,dtype=bf16 --n 2 --profile",
            "$ parity isodiff --batch --engine hf:dense-tiny,device=cpu,dtype=f16 --m 2,3 --pos 33",
        ),
    },
    INSTALLS: {
        "CONTRIBUTING.md": ("$ sh scripts/setup.sh dev",),
        "README.md": (
            "$ sh scripts/setup.sh diff",
            "$ .venv/bin/pip install -e '.[cuda13]'",
        ),
        "docs/models.md": ("$ pip install 'parity-harness[models]'",),
    },
}
NOT_RUN = {
    (page, head): reason
    for reason, pages in _REASONS.items()
    for page, heads in pages.items()
    for head in heads
}
