"""Taking results home: tables, files, source."""
