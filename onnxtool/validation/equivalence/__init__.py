"""Whether two models give the same outputs, within what tolerance, and on which inputs."""
