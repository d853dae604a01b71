"""Passes that move, merge or remove transposes and reshapes."""
