"""Probes: one file, one claim about an engine. A probe prints nothing and exits nowhere."""
