"""The loading bench: four figures of a model file, one line and a status where there is none."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from parity.model.gguf import export_gguf
from parity.model.model import synthetic
from tests.bench import loading

pytest.importorskip("gguf")


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """The status of the bench."""
    monkeypatch.setattr(sys, "argv", ["loading.py", *words])
    return loading.main()


def test_figures_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.gguf"
    export_gguf(synthetic("moe-tiny", 7), path)
    assert run(monkeypatch, str(path)) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [re.split(" {2,}", line)[0] for line in lines]
    assert names == ["plain cold read, one thread", "cpu, cold", "cpu, warm", "cpu, digests"]
    assert all(re.search(r"GB +\d+\.\d\d s +\d+\.\d\d GB/s$", line) for line in lines)


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [("none.gguf", 2, "bench: no model at "), ("text.gguf", 2, "bench: ")],
)
def test_no_model(
    name: str,
    status: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "text.gguf").write_text("no model")
    assert run(monkeypatch, str(tmp_path / name)) == status
    assert capsys.readouterr().err.startswith(said)
