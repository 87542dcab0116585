"""Programs as engines (docs/exec.md): run within limits, talked to line by line, ended for good."""
