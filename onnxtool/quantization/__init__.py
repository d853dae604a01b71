"""Float graph -> low-precision graph, within an accuracy budget."""
