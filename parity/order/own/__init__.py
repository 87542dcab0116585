"""The contract's own sums, as probes see them: the same for every engine that runs the ops."""
