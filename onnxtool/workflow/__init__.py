"""`build`: one declarative file, every model, only what is stale, in the process, on worker processes or on Dask."""
