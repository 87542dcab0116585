"""The promises about elementary functions: see ``parity.testing``, which lists them all."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from parity.promises.conformance import Bench, bits, first_difference, single_steps
from parity.protocol import ELEMENTARY, Elementary, ElementaryEngine, Engine

# Signs, sizes, both zeros, a subnormal: what any of the functions takes, several of each chunk.
ARGUMENTS = (0.0, -0.0, 1e-40, 0.25, -0.25, 1.0, 2.0, -3.5, 20.5, 88.0, -103.0, 1e6)


def elementary_is_a_function(bench: Bench) -> None:
    """Capability ``elementary``: each function of ``parity.protocol.ELEMENTARY`` takes float32[n],
    n = 0 too, and gives a new float32[n]. An argument has the same value wherever it stands and
    whenever it is asked for, a step in between included. The arguments are not written. A name
    that is not of ELEMENTARY is refused."""
    engine = bench.open()
    call = cast(ElementaryEngine, engine).elementary
    x = np.tile(np.array(ARGUMENTS, np.float32), 9)
    first = [(name, values := _values(bench, call, name, x), bits(values)) for name in ELEMENTARY]
    engine.step(bench.tokens[0])
    for name, values, kept in first:
        written = bits(values) != kept
        bench.require(not written, f"{name}: a later call wrote into what an earlier one gave")
        again = bits(_values(bench, call, name, x))
        bench.require(again == kept, f"{name}: other values after a step")
        back = _values(bench, call, name, np.ascontiguousarray(x[::-1]))[::-1]
        alone = [_values(bench, call, name, x[at : at + 1]) for at in range(len(ARGUMENTS))]
        alike = bits(back) == bits(np.tile(np.concatenate(alone), 9)) == kept
        bench.require(alike, f"{name}: the value depends on where its argument stands")
        _values(bench, call, name, x[:0])
    bench.require_refused("elementary('tanf')", lambda: call("tanf", x))


def _values(bench: Bench, call: Elementary, name: str, x: np.ndarray) -> np.ndarray:
    given = x.copy()
    values = call(name, given)
    bench.require(isinstance(values, np.ndarray), f"{name}: a {type(values).__name__}, no array")
    told = f"{values.dtype}{list(values.shape)}"
    wanted = f"float32[{x.size}]"
    bench.require(told == wanted, f"{name} of {wanted} gave {told}")
    bench.require(bits(given) == bits(x), f"{name} wrote into its arguments")
    return values


def borrow_computes_with_what_is_given(bench: Bench) -> None:
    """Capability ``borrow``, which needs ``elementary``: given the engine's own functions, a step
    has the bits it has without, and so has the state. Given one that returns other values, what
    its callers make differs; steps after that one compute with the engine's own again. Functions
    are asked with names of ELEMENTARY and float32[n]."""
    bench.require(bench.offers("elementary"), "offered without 'elementary'")
    plain, engine, tokens = bench.open(), bench.open(), bench.tokens[:2]
    wanted = single_steps(plain, tokens, bench.plan)
    own = single_steps(engine, tokens, replace(bench.plan, borrow=_lent(bench, engine)))
    bench.require_same("with the engine's own functions", wanted, own)
    bench.require_same_state("with the engine's own functions", plain, engine)
    for function in ("rsqrt", "expf"):
        engine.reset()
        plan = replace(bench.plan, borrow=_lent(bench, engine, function))
        moved = single_steps(engine, tokens, plan)
        same = not first_difference(wanted[0].entries, moved[0].entries)
        bench.require(not same, f"{function} with other values, and nothing differs")
        engine.reset()
        found = single_steps(engine, tokens, bench.plan)
        bench.require_same("after a step with others", wanted, found)


def _lent(bench: Bench, engine: Engine, moved: str = "") -> Elementary:
    """The engine's own functions, one of them moved, held to how they may be asked."""

    def call(function: str, x: np.ndarray) -> np.ndarray:
        bench.require(function in ELEMENTARY, f"{function!r} was asked for")
        shaped = x.dtype == np.float32 and x.ndim == 1
        bench.require(shaped, f"{function} was asked with {x.dtype}{list(x.shape)}")
        values = cast(ElementaryEngine, engine).elementary(function, x)
        return values * np.float32(1.5) if function == moved else values

    return call
