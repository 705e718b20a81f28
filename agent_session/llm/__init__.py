"""Speaking to providers: one protocol, one client for each wire format."""
