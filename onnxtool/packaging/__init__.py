"""`package`: a model and what a server, a browser or a device takes, as a proven folder that runs."""
