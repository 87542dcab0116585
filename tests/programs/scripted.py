"""A program that answers as it is told: ``scripted.py RULES.json``, for tests of line mode.

It keeps the protocol, with logits of zeros, but for what the rules replace, by request name:
text to be written in place of the reply (``POS`` becomes the position), or a list of actions
before that text. It imports next to nothing, so that it starts in no time.
"""

import json
import os
import sys
import time

VOCAB = 512
ZEROS = f"logits {'00000000' * VOCAB}\n"


def flood(stream):
    """Write until nobody reads."""
    data = b"x" * 65536
    while True:
        os.write(stream, data)


def child(path):
    """Leave a child behind that holds the pipes open; its number goes into ``path``."""
    number = os.fork()
    if number == 0:
        time.sleep(600)
        os._exit(0)
    with open(path, "w") as told:
        told.write(str(number))


ACTIONS = {
    "sleep": time.sleep,
    "exit": os._exit,
    "kill": lambda number: os.kill(os.getpid(), number),
    "close": os.close,
    "flood": flood,
    "child": child,
    "log": lambda text: os.write(2, text.encode()),
    "write": lambda text: os.write(1, text.encode()),
}


class Program:
    def __init__(self, rules):
        self.rules, self.pos, self.marked, self.tap = rules, 0, 0, False

    def answer(self, name, words):
        told = self.rules.get(name)
        if isinstance(told, list):
            for action, given in told:
                ACTIONS[action](given)
            told = None
        usual = getattr(
            self, f"on_{name.replace('-', '_')}", lambda *words: "error unknown request\n"
        )
        begin = self.pos
        reply = usual(*words)
        return reply if told is None else told.replace("POS", str(begin))

    def on_hello(self, version):
        words = "rows rollback state counters"
        return f"protocol 2\nengine scripted 1\ncapabilities {words}\nok\n"

    def on_load(self, *words):
        self.pos = 0
        return "ok\n"

    on_reset = on_load

    def on_tap(self, *words):
        self.tap = words != ("-",)
        return "ok\n"

    def on_step(self, *tokens):
        rows = []
        for _ in tokens:
            rows.append(f"row {self.pos}\n{ZEROS}")
            self.pos += 1
        return "".join(rows) + "ok\n"

    on_rows = on_step

    def on_prefill(self, *tokens):
        rows = self.on_step(*tokens)
        return rows if self.tap else f"row {self.pos - 1}\n{ZEROS}ok\n"

    def on_mark(self):
        self.marked = self.pos
        return "ok\n"

    def on_rollback(self):
        self.pos = self.marked
        return "ok\n"

    def on_state(self):
        return f"part lengths int32[1] {self.pos.to_bytes(4, 'little').hex()}\nok\n"

    def on_set_state(self):
        while (line := sys.stdin.readline()) != "end\n":
            if line.startswith("part lengths"):
                self.pos = int.from_bytes(bytes.fromhex(line.split()[3]), "little")
        return "ok\n"

    def on_counters(self):
        return "count calls 0\nok\n"

    def on_quit(self):
        return "ok\n"


def main():
    with open(sys.argv[1]) as rules:
        program = Program(json.load(rules))
    for line in iter(sys.stdin.readline, ""):
        name, *words = line.split()
        os.write(1, program.answer(name, words).encode())
        if name == "quit":
            return


if __name__ == "__main__":
    main()
