"""The command and its parts."""
