"""Is a file sound? The specification, the runtime, and rules of our own."""
