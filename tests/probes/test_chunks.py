"""chunks: a prompt cut anywhere gives the same bits."""

from __future__ import annotations

import pytest

from parity.comparison.states import compare_states
from parity.model.generator import prompt_tokens
from parity.status import Verdict
from parity_probes.chunks import PROMPT, Chunks
from tests.cli_runner import run_cli
from tests.probes.asking import ENGINES, ask_for, model_of, opened, run_probe


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("kind", "keys"), [("moe-tiny", 46), ("hybrid-tiny", 100)])
def test_chunks_equal_single_steps(kind: str, keys: int, engine: str) -> None:
    found = run_probe(Chunks, engine, ask_for(kind, (2,), chunks=(7, 64)))
    assert found.verdict is Verdict.SAME, found.headline
    # two sizes, by prefill and by rows, the prompt and two further steps
    assert found.compared == 2 * 2 * (PROMPT + 2) * keys
    facts = dict(found.facts)
    assert facts["path"] == "fed by prefill and by rows"
    assert facts["control"].startswith("fired: ")


def test_chunks_of_one_and_of_the_whole_prompt() -> None:
    found = run_probe(Chunks, "cpu", ask_for("dense-tiny", (2,), chunks=(1, PROMPT)))
    assert found.verdict is Verdict.SAME
    refused = [text for label, text in found.facts if label == "refused"]
    assert refused == [f"{PROMPT} by rows: 65 rows in one forward: 1 to 64 are possible"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("cut", [(65,), (64, 1), (1, 64), (32, 33), (1,) * 65, (40, 3, 22)])
def test_pieces_of_any_lengths_leave_one_state(cut: tuple[int, ...], engine: str) -> None:
    """B20: 65 tokens in pieces by prefill and, where they are short enough, as rows."""
    model, tokens = model_of("hybrid-tiny"), prompt_tokens(3, 65, 512)
    single, pieces = opened(engine, model, 65), opened(engine, model, 65)
    single.prefill(tokens)
    at = 0
    for number, size in enumerate(cut):
        feed = pieces.step_rows if size <= 64 and number % 2 == 0 else pieces.prefill
        feed(tokens[at : at + size])
        at += size
    assert compare_states("end", single.read_state(), pieces.read_state()).equal


def test_command_line() -> None:
    result = run_cli("isodiff", "--chunks", "2,7,16", "-q", "--model", "dense-tiny")
    keys = 3 * 2 * (PROMPT + 8) * 46
    assert result.stdout == f"same: chunks of 2, 7, 16: {keys:,} of {keys:,} keys, state equal\n"
    assert result.status == 0
