"""What the compiler made of a region."""
