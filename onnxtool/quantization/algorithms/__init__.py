"""How a float graph becomes a low-precision graph, one algorithm a module."""
