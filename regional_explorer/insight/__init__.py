"""Shows what the compiler generated for a region."""
