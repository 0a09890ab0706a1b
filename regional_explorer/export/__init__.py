"""Tables, files and source code made from a session."""
