"""The example engine with one fault: ``twins.py FAULT``. Each class says what is wrong with it."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from parity.fnv import BASES  # noqa: E402
from parity.program.serving import serve  # noqa: E402

_PATH = ROOT / "examples" / "exec_engine.py"
_SPEC = importlib.util.spec_from_file_location("exec_engine", _PATH)
assert _SPEC is not None
assert _SPEC.loader is not None
example = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(example)


class Rows(example.Toy):
    """In a forward of 3 rows or more, element 2 of attn of layer 1 in row 2 is 1 ULP off."""

    def rows(self, tokens, tap):
        self.begin, self.size = self.length, len(tokens)
        return super().rows(tokens, tap)

    def attention(self, layer, pos, x):
        attn = super().attention(layer, pos, x)
        if self.size > 2 and (layer, pos) == (1, self.begin + 2):
            attn[2] = np.nextafter(attn[2], np.float32(np.inf))
        return attn


class Ahead(example.Toy):
    """In a forward of rows, each row but the last reads the KV row of the next one as well."""

    def rows(self, tokens, tap):
        self.end = self.length + len(tokens)
        return super().rows(tokens, tap)

    def attention(self, layer, pos, x):
        return super().attention(layer, min(pos + 1, self.end - 1), x)


class Unread(example.Toy):
    """In a forward of rows, the last row reads a KV row past the length."""

    def rows(self, tokens, tap):
        self.last = self.length + len(tokens) - 1 if len(tokens) > 1 else -1
        return super().rows(tokens, tap)

    def attention(self, layer, pos, x):
        return super().attention(layer, pos + (pos == self.last), x)


class Length(example.Toy):
    """Rollback forgets the length."""

    def rollback(self):
        length = self.length
        super().rollback()
        self.length = length


class Scores(example.Toy):
    """What rows left in the KV cache at position 0 stays after a rollback."""

    def rows(self, tokens, tap):
        if len(tokens) > 1:
            self.k[0, 0, 5] = np.nextafter(self.k[0, 0, 5], np.float32(np.inf))
        return super().rows(tokens, tap)


class NoMark(example.Toy):
    """A rollback without a mark is not refused."""

    def rollback(self):
        if self.marked is not None:
            super().rollback()


class Looped(example.Toy):
    """Rows are single steps one after the other."""

    def rows(self, tokens, tap):
        return [logits for token in tokens for logits in super(Looped, self).rows([token], tap)]


class Unstable(example.Toy):
    """Every other run of a process has another x at position 33, layer 1."""

    runs = 0

    def reset(self):
        super().reset()
        self.runs += 1

    def attention(self, layer, pos, x):
        attn = super().attention(layer, pos, x)
        if (layer, pos) == (1, 33) and self.runs % 2:
            attn[0] = np.nextafter(attn[0], np.float32(np.inf))
        return attn


class Fresh(example.Toy):
    """Every process has another attn at position 33, layer 0."""

    def attention(self, layer, pos, x):
        attn = super().attention(layer, pos, x)
        if (layer, pos) == (0, 33):
            attn[0] = np.float32(os.getpid())
        return attn


class NotANumber(example.Toy):
    """The logits at position 33 hold a NaN."""

    def rows(self, tokens, tap):
        begin = self.length
        logits = super().rows(tokens, lambda *value: value[2] != "logits" and tap(*value))
        for m, row in enumerate(logits):
            if begin + m == 33:
                row[7] = np.nan
            tap(begin + m, None, "logits", row)
        return logits


class Tapped(example.Toy):
    """A tap changes what is computed."""

    def attention(self, layer, pos, x):
        attn = super().attention(layer, pos, x)
        return np.nextafter(attn, np.float32(np.inf)) if self.tapped else attn

    def rows(self, tokens, tap):
        self.tapped = bool(tap.fields)
        return super().rows(tokens, tap)


class OneHash(example.Toy):
    """Keys are hashed with fnv1a64 whichever hash was asked for; the logits are left to parity."""

    def rows(self, tokens, tap):
        tap.basis = BASES["fnv1a64"]
        return super().rows(tokens, lambda *value: value[2] != "logits" and tap(*value))


class Chatty(example.Toy):
    """No fault: what it prints on stdout, by Python or past it, is no part of a reply."""

    def rows(self, tokens, tap):
        print("forward of", len(tokens))
        os.write(1, b"row 7\n")
        return super().rows(tokens, tap)


if __name__ == "__main__":
    serve(globals()[sys.argv[1]]())
