"""What several passes recognise in a graph: operands, causal masks, uniform constants."""
