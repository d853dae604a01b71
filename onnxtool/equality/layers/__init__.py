"""Comparison tensor by tensor: where two models begin to differ, and what explains it."""
