"""What the magic and the shell share: options, the text of a call, and the command they make."""
