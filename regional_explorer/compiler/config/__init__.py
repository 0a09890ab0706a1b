"""The Inductor configs that a region can have, and the validation of requested ones."""
