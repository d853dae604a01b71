"""Corrections of the exporters of PyTorch."""
