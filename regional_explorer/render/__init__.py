"""Draws and prints sessions: pictures, tables and pages, from the frozen record alone."""
