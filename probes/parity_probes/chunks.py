"""Chunks: a prompt prefilled in pieces has the bits of single steps, whatever the pieces.

Compared: every key of the prompt, the state afterwards, and further steps. It would break where a
chunk's border changes a prefix or an order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from parity.model.generator import prompt_tokens
from parity.model.model import Model
from parity.probe import Ask, Found, OpenSide
from parity.protocol import Step
from parity.run import Side
from parity.status import Verdict
from parity_probes.blocks import Outcome, compare_outcomes, plan_for

PROMPT = 64


class Chunks:
    """Probe ``chunks``."""

    name = "chunks"
    claim = "a prompt prefilled in pieces has the bits of single steps"
    needs: Sequence[str] = ("rows", "state")

    def run(self, open_side: OpenSide, ask: Ask) -> Found:
        """Every chunk size and seed."""
        problems: list[tuple[int, str, str | None]] = []
        keys = 0
        for model in ask.models:
            side = open_side(model, PROMPT + ask.more)
            ref = _run(side, model, 1, ask.more)
            for size in ask.chunks:
                found, states, further = compare_outcomes(ref, _run(side, model, size, ask.more))
                keys += found.counts.total
                if found.verdict is not Verdict.SAME:
                    problems.append((size, f"first key {found.first}", found.first))
                elif not states.equal:
                    problems.append((size, f"state differs, first at {states.first}", None))
                elif further is not None and further.verdict is not Verdict.SAME:
                    problems.append((size, f"a further step differs at {further.first}", None))
        sizes = ", ".join(map(str, ask.chunks))
        facts = [("prompt", f"{PROMPT} tokens in chunks of {sizes}, {len(ask.models)} seeds")]
        if problems:
            size, what, first = min(problems)
            return Found(
                *(self.name, Verdict.DIVERGED, f"chunks of {size}; {what}", facts),
                first=first,
                failing=f"--chunks {size}",
                compared=keys,
            )
        headline = f"chunks of {sizes}: {keys:,} of {keys:,} keys, state equal"
        return Found(self.name, Verdict.SAME, headline, facts, compared=keys)


def _run(side: Side, model: Model, size: int, more: int) -> Outcome:
    engine: Any = side.engine
    seed = int(getattr(model, "seed", 0))
    tokens = prompt_tokens(seed, PROMPT + more, model.config.vocab)
    plan = plan_for(model.config)
    engine.reset()
    steps: list[Step] = []
    for at in range(0, PROMPT, size):
        part = tokens[at : min(at + size, PROMPT)]
        steps += engine.step_rows(part, plan) if size > 1 else [engine.step(part[0], plan)]
    state = engine.read_state()
    return Outcome(steps, state, [engine.step(token, plan) for token in tokens[PROMPT:]], {})
