"""Every table, for data frames, texts, pages and the panel."""
