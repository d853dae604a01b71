"""Floor 6: arguments in, reports out."""
