"""Tables and texts of a session, as HTML and plain text."""
