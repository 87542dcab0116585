"""May an engine or a variant become the default? Equality first, then time, then a verdict."""
