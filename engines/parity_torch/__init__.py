"""Models of transformers as engines: ``hf:PATH_OR_PRESET`` is one side of any check."""

from parity_torch.engine import HfEngine

__all__ = ["HfEngine"]
