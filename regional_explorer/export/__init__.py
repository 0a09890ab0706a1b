"""Files and source code made from a session."""
