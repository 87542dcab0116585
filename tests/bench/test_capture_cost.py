"""The capture bench counts what it says, and refuses to publish the cost of a tap that disturbs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from parity.dumps.reader import read_dump
from parity.protocol import Plan, Step
from parity_cpu.engine import Engine
from tests.bench import capture
from tests.cli_runner import run_cli

WORDS = ["--model", "moe-tiny", "--steps", "2", "--rounds", "1"]
KEYS = 46  # a step of moe-tiny


class Disturbing(Engine):
    """Adds to a K row in every step whose values are kept."""

    def step(self, token: int, plan: Plan | None = None) -> Step:
        step = super().step(token, plan)
        if plan is not None and plan.tensors:
            self._state.layers[0]["k"][self.length - 1, 0, 0] += np.int8(1)
        return step


@pytest.mark.parametrize("engine", ["cpu", "emu"])
def test_bytes_and_keys_are_those_of_the_files(
    engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cost.json"
    assert capture.main([*WORDS, "--engine", engine, "--json", str(path)]) == 0
    body = json.loads(path.read_text())
    assert (body["format"], body["version"], body["rounds"]) == ("parity-capture-cost", 1, 1)
    costs = {cost["what"]: cost for cost in body["costs"]}
    assert [*costs] == [*capture.plans_of(capture.synthetic("moe-tiny", 7).config)]
    assert costs["off"]["ratio"] == 1.0
    assert all(cost["seconds"] > 0 for cost in costs.values())
    none, all_of = costs["off"], costs["digests and values"]
    assert (none["keys"], none["read"], none["kept"], none["dump"]) == (0, 0, 0, 0)
    assert (all_of["keys"], all_of["read"]) == (KEYS, all_of["kept"])
    # The same run by the command line: two steps after 32 tokens.
    dump, digest = tmp_path / "run.dump", tmp_path / "run.digest"
    assert run_cli("dump", "--engine", engine, "--n", "2", "-o", str(dump)).status == 0
    lines = [line for line in dump.read_text().splitlines() if line[0] != "#"]
    assert len(lines) == read_dump(dump).size == 2 * KEYS
    assert costs["digests"]["dump"] == sum(len(line) + 1 for line in lines) // 2
    assert run_cli("digest", str(dump), "-o", str(digest)).status == 0
    assert costs["digests"]["digest"] == len(json.loads(digest.read_text())["links"][0])
    lines = capsys.readouterr().out.splitlines()
    assert lines[7].split() == ["captured", "ms", "x", "keys", "read", "kept", "dump", "digest"]
    assert len(lines) == 8 + len(costs)


def test_red_tap_that_disturbs_has_no_cost(capsys: pytest.CaptureFixture[str]) -> None:
    assert capture.main([*WORDS, "--engine", "tests.bench.test_capture_cost:Disturbing"]) == 1
    streams = capsys.readouterr()
    assert streams.out == ""
    said = "bench: digests and values: other logits or another state than without a tap\n"
    assert streams.err == said


def test_red_engine_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert capture.main([*WORDS, "--engine", "x.dump"]) == 1
    assert "x.dump is no engine" in capsys.readouterr().err
    assert capture.main(["--model", "no-such", "--engine", "cpu"]) == 1


@pytest.mark.parametrize("count", ["0", "-1", "many"])
def test_red_no_rounds(count: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        capture.main([*WORDS, "--rounds", count])
    assert done.value.code == 2
    assert f"must be 1 or more, got {count}" in capsys.readouterr().err
