"""The `keelbolt` command. Thin: it parses, calls and prints; everything it can do can be done from Python."""
