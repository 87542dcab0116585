"""``parity isolate``: which variants, which op, which key brings a difference."""
