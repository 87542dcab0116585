"""The oracle's oracle: slow scalar twins of every op, written from the contract alone."""
