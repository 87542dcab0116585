"""Reading a Hugging Face folder: config.json and safetensors, in one file or in shards."""

from parity.model.folder.opening import open_folder

__all__ = ["open_folder"]
