"""`python -m tests.sim.raft`, see cli.py."""

from tests.sim.raft.cli import main

raise SystemExit(main())
