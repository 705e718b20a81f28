"""The runtime at work, offline: `python -m agent_session.demo`.

Only the model's answers are scripted. The provider is an HTTP server on 127.0.0.1 with a small window, the session, its
tools, the project they work on, the compactions and the log are what every program gets; the demonstration checks its
own claims, and fails where one does not hold.
"""
