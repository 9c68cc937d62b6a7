"""`python -m distbench.agent`, with the ticket in its environment."""

from __future__ import annotations

import json
import os

from distbench.agent.door import TICKET, Ticket
from distbench.agent.node import run_agent

if __name__ == "__main__":
    # Nothing that the agent starts may see it.
    run_agent(Ticket(**json.loads(os.environ.pop(TICKET))))
