"""The command line: arguments in, reports out; no model logic."""
