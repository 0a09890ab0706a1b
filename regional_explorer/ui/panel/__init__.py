"""The panel's parts: tool bar, region table, config editor, marking and editing."""
