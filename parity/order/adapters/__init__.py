"""Ops whose sums can be probed: NumPy's, and functions of the user's own."""
