"""The command line: options to settings, settings to a tree, the tree to reports."""
