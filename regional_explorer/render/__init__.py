"""What a person sees of a session: pictures, tables and pages, from the frozen record alone."""
