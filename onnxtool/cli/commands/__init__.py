"""One module for each command: its arguments, its options, and the call of the function behind it."""
