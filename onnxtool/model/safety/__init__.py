"""Checks of what a file declares, before memory or time is spent on it."""
