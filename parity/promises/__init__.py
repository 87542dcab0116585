"""What every engine promises, and holding one to it: see ``parity.testing``."""
