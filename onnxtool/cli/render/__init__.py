"""One renderer for each output form."""
