"""Ops of the exact tier, one file each: twins of engines/parity_cuda/kernels."""
