"""`python -m agent_session`: the Python prompt with a session at hand and `await` at the top level."""
