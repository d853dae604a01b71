"""Making fixed dims dynamic: what depends on the old size is rewritten, and the result is proven."""
