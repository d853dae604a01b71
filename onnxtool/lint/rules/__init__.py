"""The rules of `check`, one module for each family."""
