"""Probes: each module tests one claim about a pair of engines.

A module belongs here when it states one claim in its head ("row r of a batch of M equals the same
row alone"), says what would break the claim and what it does not show, and holds one class that
meets the probe protocol of the core. It compares and returns; it prints nothing. Modules here
import `parity`, never an engine or a report.
"""
