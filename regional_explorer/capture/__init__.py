"""From a call to a record: trace once, stamp origins, keep every graph."""
