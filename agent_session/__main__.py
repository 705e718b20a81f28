"""`python -m agent_session`: the Python prompt of `agent_session.repl`."""

import sys

from agent_session.repl.main import main

if __name__ == "__main__":
    sys.exit(main())
