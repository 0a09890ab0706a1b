"""Background work of a panel: worker thread, turns on the main thread, debouncing, progress."""
