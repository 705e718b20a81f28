"""`python -m agent_session.cli`: the command line where its script is not on the path."""

from __future__ import annotations

import sys

from agent_session.cli.main import main

sys.exit(main())
