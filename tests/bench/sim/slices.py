"""The part of a trace that tests replay."""

from pathlib import Path

CODING_AGENT = Path(__file__).parents[2] / "data" / "traces" / "coding_agent_200.jsonl.gz"
