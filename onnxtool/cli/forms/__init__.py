"""The forms that a report is written in, a module each: for people by its view, for machines from its fields."""
