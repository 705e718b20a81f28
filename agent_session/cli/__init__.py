"""The command line: `agent-session`."""
