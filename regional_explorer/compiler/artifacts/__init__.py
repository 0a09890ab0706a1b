"""Compiled partitions: the store, what identifies them, and the form in which Inductor gets them."""
