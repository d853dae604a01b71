"""Native code in child processes, with limits of memory and time."""
