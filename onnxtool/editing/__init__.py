"""Changes of a finished model that its user asks for by name, each proven before anything is written."""
