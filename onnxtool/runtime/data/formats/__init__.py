"""Formats of tables. Every module here is one; `registry.py` finds it by its SUFFIXES."""
