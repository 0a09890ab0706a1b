"""What is done: the config catalogue, compiling pieces, and switching between implementations in place."""
