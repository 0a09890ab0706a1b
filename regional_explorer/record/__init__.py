"""What an exploration found: frozen dataclasses, standard library only."""
