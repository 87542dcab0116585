# Each recipe is one line; CI calls the same ones. All use .venv, which `setup` makes.

set positional-arguments

python := ".venv/bin/python"

# list the recipes
default:
    @"{{ just_executable() }}" --list

# make .venv with everything for development
setup:
    sh scripts/setup.sh dev

# the torch extra into .venv: without it the tests of hf engines are counted as not run
torch *args:
    {{ python }} -m pip install --quiet --disable-pip-version-check -e '.[torch]' "$@"

# formatting and lint
lint:
    {{ python }} -m ruff format --check . && {{ python }} -m ruff check .

# mypy (strict) and pyright
types:
    {{ python }} -m mypy && {{ python }} -m pyright

# all tests that need no GPU; a worker has neighbours to itself, as they share what is slow to make
test *args:
    {{ python }} -m pytest -n 2 --dist worksteal --no-gpu "$@"

# the planted faults alone
red *args:
    {{ python }} -m pytest tests/red --no-gpu "$@"

# the tests that need a GPU, with a table; ends 5 where none could run
gpu *args:
    {{ python }} -m pytest -m gpu "$@"

# every kernel under stress: orders, poison, sanitizers, PTX, the fallback compiler
stress *args:
    {{ python }} -m pytest -n 2 tests/engines/emu/test_stress.py tests/engines/emu/test_stress_red.py tests/engines/emu/test_stress_steps.py tests/engines/cuda/test_ptx.py tests/engines/cuda/test_ptx_allowed.py "$@"

# seeded faults against an independent oracle, equal pairs, other tools
study *args:
    {{ python }} -m tests.study.run "$@"

# mutation testing of the comparison and the probes: scores, and every survivor
mutants *args:
    {{ python }} -m pip install -q "mutmut==3.8.*" && {{ python }} tests/mutants/run.py "$@"

# start-up and warm diff times
bench *args:
    {{ python }} tests/bench/run.py "$@"

# on an NVIDIA device: the hash, decode steps launched and replayed, with and without a dump
bench-device *args:
    {{ python }} tests/bench/device.py "$@"

# on an NVIDIA device: each launch of a decode step by itself, and the step without it
bench-launches *args:
    {{ python }} -m tests.bench.launches "$@"

# each kernel's time on the device at the shapes of two models
bench-kernels *args:
    {{ python }} -m tests.bench.kernels "$@"

# measure which tile of weight rows this device likes best and keep it
tune *args:
    {{ python }} tests/bench/tune.py "$@"

# the CPU engine's products at the qwen3-30b-a3b shape, beside reading plain memory
bench-cpu *args:
    {{ python }} -m tests.bench.cpu "$@"

# how time grows when keys, context, rows or layers double: [N] [--engine cuda] [--only TEXT]
bench-scaling *args:
    {{ python }} -m tests.bench.scaling "$@"

# what Python makes of a dumped step, and of a run of them, beside a device that answers at once
bench-dump *args:
    {{ python }} -m tests.bench.dumping "$@"

# how fast an engine takes over a model file: FILE [--engine cuda]
bench-loading *args:
    {{ python }} tests/bench/loading.py "$@"

# parity compare on 10 million lines, beside diff and pandas: time and memory
bench-compare *args:
    {{ python }} tests/bench/compare.py "$@"

# build the wheel into dist/ and check what it would put into site-packages
wheel:
    rm -f dist/*.whl && {{ python }} -m build --wheel --no-isolation && {{ python }} tests/packaging/check_wheel.py dist/*.whl

# install that wheel into a fresh environment outside the repository and use it there
installed:
    {{ python }} tests/packaging/check_installed.py dist/*.whl

# build the site of docs/ into site/, run all blocks of the pages, check the links
docs *args:
    NO_MKDOCS_2_WARNING=1 {{ python }} -m mkdocs build --strict && {{ python }} -m pytest tests/docs "$@"
