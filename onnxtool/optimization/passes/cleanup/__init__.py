"""Passes that remove what computes nothing new: dead code, no-ops, constants, equal subexpressions."""
