"""Searches for an input on which two models differ, and for the branches that no input has reached."""
