"""What a person sees of a session on a terminal, the same for the command line and the demonstration."""
