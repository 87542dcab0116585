"""``hf:MODEL``: the grammar, the model that a side carries, and the statuses of the commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parity.errors import InputError
from parity.runs.carried import model_text
from parity.spec import EngineSpec, parse_spec
from tests.cli_runner import Result, run_cli

INSTALLED = ("cpu", "emu", "hf")
RUN = ("--tokens", "1,2,3", "--n", "1")


def hf(model: str, text: str = "", **options: str) -> EngineSpec:
    """The spec of ``hf:model`` with options."""
    return EngineSpec(text or f"hf:{model}", "hf", options=options, model=model)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("hf", EngineSpec("hf", "hf")),
        ("hf@dtype=bf16", EngineSpec("hf@dtype=bf16", "hf", options={"dtype": "bf16"})),
        ("hf:dense-tiny", hf("dense-tiny")),
        ("hf:a-b+c", hf("a-b+c")),
        ("hf:/models/a@v2,x", hf("/models/a@v2,x")),
        ("hf:C:/models", hf("C:/models")),
        (
            "hf:m,dtype=bf16,device=cuda,attn=eager",
            hf(
                "m",
                "hf:m,dtype=bf16,device=cuda,attn=eager",
                dtype="bf16",
                device="cuda",
                attn="eager",
            ),
        ),
        ("hf:m@dtype=f16,threads=1", hf("m", "hf:m@dtype=f16,threads=1", dtype="f16", threads="1")),
        ("cpu:fast", EngineSpec("cpu:fast", "cpu", "fast")),
        ("emu:nosuch", EngineSpec("emu:nosuch", "emu", "nosuch")),
    ],
)
def test_grammar(text: str, spec: EngineSpec) -> None:
    assert parse_spec(text, INSTALLED) == spec


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hf:", "'hf:' names no model"),
        ("hf:,dtype=bf16", "'hf:,dtype=bf16' names no model"),
        ("hf:m,dtype=f16,dtype=bf16", "'hf:m,dtype=f16,dtype=bf16': the option dtype stands twice"),
        ("hff:m", "'hff:m': module hff"),
    ],
)
def test_what_is_no_spec(text: str, said: str) -> None:
    if text.startswith("hff"):
        assert parse_spec(text, INSTALLED) == EngineSpec(text, text, foreign=True)
        return
    with pytest.raises(InputError) as told:
        parse_spec(text, INSTALLED)
    assert told.value.message == said


def test_the_refs_model_is_the_runs() -> None:
    cpu = EngineSpec("cpu", "cpu")
    assert model_text((), "") == "moe-tiny"
    assert model_text((cpu, hf("a")), "") == "a"
    assert model_text((hf("b"), hf("a")), "") == "b"
    assert model_text((hf("a"), cpu), "a") == "a"
    assert model_text((EngineSpec("hf", "hf"), cpu), "", "hybrid-tiny") == "hybrid-tiny"
    for sides in ((hf("a"), cpu), (cpu, hf("a"))):
        with pytest.raises(InputError) as told:
            model_text(sides, "c")
        assert told.value.message == "--model c with hf:a: two models"


def said(result: Result) -> tuple[int, str]:
    """Status and the first line of stderr; no traceback, nothing on stdout."""
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    return result.status, result.stderr.splitlines()[0]


@pytest.mark.parametrize(
    ("words", "status", "line"),
    [
        (
            ("dump", "--engine", "hf:dense-tiny,dtype=fp8", "-o", "-"),
            *(2, "parity: hf: dtype=fp8 is not known"),
        ),
        (
            ("dump", "--engine", "hf:dense-tiny,dtyp=f16", "-o", "-"),
            *(2, "parity: hf has no option @dtyp"),
        ),
        (
            ("stable", "--engine", "hf:dense-tiny,threads=-1"),
            *(2, "parity: hf: threads=-1 is no number of threads"),
        ),
        (
            ("diff", "--ref", "hf:dense-tiny", "--dut", "cpu", "--model", "moe-tiny"),
            *(2, "parity: --model moe-tiny with hf:dense-tiny: two models"),
        ),
        (
            ("isodiff", "--engine", "hf:dense-tiny", "--model", "hybrid-tiny"),
            *(2, "parity: --model hybrid-tiny with hf:dense-tiny: two models"),
        ),
        (
            ("conformance", "hf:dense-tiny", "--model", "moe-tiny"),
            *(2, "parity: --model moe-tiny with hf:dense-tiny: two models"),
        ),
        (
            ("dump", "--engine", "hf+fma", "-o", "-"),
            *(2, "parity: hf+fma: engine hf has no variant 'fma'"),
        ),
    ],
)
def test_what_is_typed_wrong_is_refused_in_one_line(
    words: tuple[str, ...], status: int, line: str
) -> None:
    pytest.importorskip("torch")
    assert said(run_cli(*words)) == (status, line)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "none"
    result = run_cli("dump", "--engine", f"hf:{path}", "-o", str(tmp_path / "a.dump"))
    assert said(result) == (2, f"parity: hf:{path}: no such folder, and no preset")
    assert list(tmp_path.iterdir()) == []


def test_no_report_is_written_over_a_file_of_the_model(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    file = tmp_path / "config.json"
    file.write_text("{}")
    result = run_cli("diff", "--ref", f"hf:{tmp_path}", "--dut", "cpu", "--json", str(file))
    assert (result.status, file.read_text()) == (2, "{}")
    assert str(file) in result.stderr


def test_without_torch_it_is_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    report = tmp_path / "r.xml"
    result = run_cli("diff", "--ref", "hf:dense-tiny", "--dut", "cpu", "--junit", str(report))
    assert said(result) == (3, "parity: not run: hf: torch is not installed")
    assert "pip install 'parity-harness[torch]'" in result.stderr
    listed = run_cli("doctor", "--json", "-")
    found = {one["name"]: one for one in json.loads(listed.stdout)["findings"]}
    assert (listed.status, found["hf"]["ok"], found["hf"]["text"]) == (
        *(0, False, "torch is not installed"),
    )
    assert found["hf"]["next_step"] == "run: pip install 'parity-harness[torch]'"


def test_engines_lists_what_it_offers() -> None:
    rows = json.loads(run_cli("engines", "--json", "-").stdout)["engines"]
    (row,) = [row for row in rows if row["name"] == "hf"]
    assert (row["tiers"], row["variants"]) == (["library"], [])
    assert {"rows", "batch", "rollback", "state", "capture"} <= set(row["capabilities"])


def test_the_model_of_a_side_is_the_runs(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "run.json"
    result = run_cli("diff", "--ref", "hf:dense-tiny", "--dut", "hf", *RUN, "--json", str(path))
    assert result.status == 0, result.stderr
    assert json.loads(path.read_text())["run"]["model"] == "dense-tiny f32 seed 7"


def test_a_dut_with_another_model_loads_its_own(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tests.engines.torch.engines import folder

    for name, size in (("one", 40), ("two", 48)):
        folder(tmp_path / name, "Llama", intermediate_size=size)
    sides = ("--ref", f"hf:{tmp_path}/one", "--dut", f"hf:{tmp_path}/two")
    path = tmp_path / "run.json"
    result = run_cli("diff", *sides, *RUN, "--json", str(path))
    assert result.status == 1, result.stderr
    tree = json.loads(path.read_text())
    assert any(note.startswith("weights differ in") for note in tree["notes"]), tree["notes"]


def test_an_engine_without_its_arithmetic_is_refused_by_name(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tests.engines.torch.engines import folder

    path = folder(tmp_path / "llama", "Llama")
    result = run_cli("diff", "--ref", f"hf:{path}", "--dut", "cpu", *RUN)
    assert said(result) == (
        2,
        "parity: cpu cannot run llama (LlamaForCausalLM): parity has no arithmetic for "
        "LlamaForCausalLM",
    )


def test_python_takes_the_model_of_a_side() -> None:
    pytest.importorskip("torch")
    import parity

    found = parity.diff("hf:dense-tiny", "hf", tokens=[1, 2, 3], n=1)
    assert found.same
    with pytest.raises(InputError, match="model moe-tiny with hf:dense-tiny: two models"):
        parity.diff("hf:dense-tiny", "hf", model="moe-tiny")


def test_a_hybrid_of_one_kind_of_layer_is_run_as_such() -> None:
    """The side's own name does not bring the whole model back."""
    pytest.importorskip("torch")
    from parity.progress import Progress
    from parity.runs.probe_run import probe_settings
    from parity.runs.run import Run
    from parity.runs.sides import open_side

    spec = hf("hybrid-tiny")
    ask = probe_settings(sizes=(2,), starts=(5,), only="gdn", seeds=2, sides=(spec,))
    labels = [model.label for model in ask.models]
    assert labels == ["hybrid-tiny gdn f32 seed 7", "hybrid-tiny gdn f32 seed 8"]
    with Progress(quiet=True) as progress:
        side = open_side("engine", spec, Run(ask.models[1], (1, 2), 0), progress)
    assert side.engine.model.label == labels[1]  # type: ignore[attr-defined]


def test_an_architecture_without_a_map_says_so(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tests.engines.torch.engines import folder

    said = "map none for MistralForCausalLM: fields are named after its modules"
    for kind, told in (("Mistral", True), ("Llama", False)):
        path, dump = folder(tmp_path / kind, kind), tmp_path / f"{kind}.dump"
        result = run_cli("dump", "--engine", f"hf:{path}", *RUN, "-o", str(dump))
        assert result.status == 0, result.stderr
        assert (f"hf: {said}" in result.stderr.splitlines()) is told, result.stderr
        assert (f"# {said}" in dump.read_text().splitlines()) is told
