"""The `keelbolt` command. It only parses, calls and prints; every feature is also available from Python."""
