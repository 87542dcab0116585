"""Reports: each module presents one divergence tree in one format.

A module belongs here when it holds one class that meets the report protocol of the core. It takes
the stored tree and writes; it computes nothing, so every report can be made again from a file.
Heavy libraries (rich, jinja2, pandas) are imported where they are used.
"""
