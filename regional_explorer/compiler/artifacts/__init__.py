"""Compiled partitions: what identifies them, the canonical form that Inductor compiles, and their storage."""
