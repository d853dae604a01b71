"""Graph -> smaller, faster, equal graph."""
