"""Models: configurations, synthetic weights, prompts (docs/contract.md sections 1.0, 1.7, 7, 8)."""
