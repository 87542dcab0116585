"""A toy engine in NumPy that parity drives as a program: the model is in README.md beside this.

parity isodiff --engine 'exec:python examples/exec_engine.py'
"""

import numpy as np

from parity.program.serving import serve

LAYERS, DIM, VOCAB = 2, 8, 512


def weights(matrix, layer, rows):
    """float32[rows, DIM], exact, made from integers."""
    row, column = np.ogrid[:rows, :DIM]
    h = matrix * 7919 + layer * 104729 + row * 1299709 + column * 15485863
    h = h.astype(np.uint32)
    h = (h ^ (h >> 15)) * np.uint32(0x2C1B3C6D)
    return (((h ^ (h >> 12)) % 255).astype(np.float32) - 127) / np.float32(128)


def product(matrix, x):
    """float32[r, n] times each row of float32[m, n], sums ascending from 0: float32[m, r]."""
    total = np.zeros((len(x), len(matrix)), np.float32)
    for j in range(matrix.shape[1]):
        total = total + matrix[:, j] * x[:, j : j + 1]
    return total


def squashed(x):
    """x / (1 + |x|)."""
    return x / (np.float32(1) + np.abs(x))


class Toy:
    """One sequence; of the KV cache, float32[layers, positions, DIM] each, rows 0 to length - 1."""

    name, version, vocab, header = "toy", "1", VOCAB, {"model": "toy"}

    def load(self, _model, positions):
        self.k, self.v = (np.zeros((LAYERS, positions, DIM), np.float32) for _ in range(2))
        self.embedding, self.output = (weights(matrix, 0, VOCAB) for matrix in (0, 3))
        self.projections = [[weights(m, layer, DIM) for m in (1, 2)] for layer in range(LAYERS)]
        self.forwards = 0
        self.reset()

    def reset(self):
        self.length, self.marked = 0, None

    def step(self, token, tap):
        return self.rows([token], tap)[0]

    def rows(self, tokens, tap):
        """All tokens in one forward; each sum has the order it has alone."""
        begin, end = self.length, self.length + len(tokens)
        x = self.embedding[tokens]
        for layer, projections in enumerate(self.projections):
            k, v = (product(matrix, x) for matrix in projections)
            self.k[layer, begin:end], self.v[layer, begin:end] = k, v
            attn = np.array([self.attention(layer, begin + m, row) for m, row in enumerate(x)])
            x = squashed(x + attn)
            for field, values in (("k", k), ("v", v), ("attn", attn), ("x", x)):
                for m, row in enumerate(values):
                    tap(begin + m, layer, field, row)
        logits = product(self.output, x)
        for m, row in enumerate(logits):
            tap(begin + m, None, "logits", row)
        self.length, self.forwards = end, self.forwards + 1
        return logits

    def attention(self, layer, pos, x):
        scores = squashed(product(self.k[layer, : pos + 1], x[None])[0])
        total = np.zeros(DIM, np.float32)
        for score, value in zip(scores, self.v[layer], strict=False):
            total = total + score * value
        return total / np.float32(pos + 1)

    def mark(self):
        self.marked = self.length

    def rollback(self):
        if self.marked is None:
            raise ValueError("rollback without a mark")
        self.length, self.marked = self.marked, None  # rows past the length are never read

    def state(self):
        parts = {"lengths": np.array([self.length], np.int32)}
        for layer in range(LAYERS):
            parts[f"l{layer}_k"] = self.k[layer, : self.length]
            parts[f"l{layer}_v"] = self.v[layer, : self.length]
        return parts

    def set_state(self, parts):
        self.length = int(parts["lengths"][0])
        for layer in range(LAYERS):
            self.k[layer, : self.length] = parts[f"l{layer}_k"]
            self.v[layer, : self.length] = parts[f"l{layer}_v"]

    def counters(self):
        return {"forward": self.forwards}


if __name__ == "__main__":
    serve(Toy())
