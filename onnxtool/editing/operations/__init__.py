"""The operations of `edit`, one subject a module."""
