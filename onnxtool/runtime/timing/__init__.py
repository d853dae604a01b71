"""How long models and their nodes take."""
