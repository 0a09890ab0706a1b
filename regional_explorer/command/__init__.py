"""What the magic and the command line share: options, parsing of the call, and the command itself."""
