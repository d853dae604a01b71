"""Whether a file is sound: rules, the checker, shape inference, a run on the runtime."""
