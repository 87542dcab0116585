"""Tests of the presenters and of progress: goldens, hostile data, planted contradictions."""
