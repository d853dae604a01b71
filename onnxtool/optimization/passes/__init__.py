"""The rewrite passes, one family for each file."""
