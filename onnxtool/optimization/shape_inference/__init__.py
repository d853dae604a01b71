"""Shapes, symbolic dims and the values of shape tensors, as far as a graph determines them."""
