"""parity: bit-exactness verification of LLM inference engines (see docs/contract.md)."""

__version__ = "0.1.0"
