"""The code that Inductor generated for a region."""
