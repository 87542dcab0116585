"""GGUF files: the container, the conventions of its models (contract 1.11), reading and writing."""

from parity.model.gguf.export import export_gguf as export_gguf
from parity.model.gguf.opening import open_gguf as open_gguf
