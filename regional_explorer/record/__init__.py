"""The frozen record of an exploration: dataclasses that need nothing but the standard library."""
