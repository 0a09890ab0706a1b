"""Numbers for people, elements, colours."""
