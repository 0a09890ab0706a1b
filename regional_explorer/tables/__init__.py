"""Each table of what is known, for frames, texts, pages and the panel."""
