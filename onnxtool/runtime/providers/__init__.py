"""Execution providers: how one is asked for, plugins, where nodes run, and what precision was kept."""
