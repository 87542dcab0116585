"""Elementary functions over float32: who implements them, and how two differ (contract 4)."""
