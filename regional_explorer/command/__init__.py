"""The magic and the command line, and what they share: options, parsing of the call, and the command itself."""
