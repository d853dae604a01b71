"""One module for each place where a model may run."""
