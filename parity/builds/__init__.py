"""Which build ran: compiled code, packages, kept files and their seals (docs/provenance.md)."""
