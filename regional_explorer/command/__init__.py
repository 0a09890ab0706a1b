"""The magic and the command line, and what both use: the options, the parsed call, the parsed command."""
