"""One renderer for each output form: a function from a report to text. `terminal` alone writes to a console."""
