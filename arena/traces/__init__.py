"""Traces: text that a verifier sampled, with log-probabilities, and the logs they are read from.

A trace is all that replay needs: no verifier is at hand. ``records`` says what one
text holds, ``tables`` keeps texts in Parquet, ``logs`` reads what serving engines
write, ``runs`` reads what a run of our own left, and ``load`` chooses among them.
"""

from arena.traces.load import load
from arena.traces.records import Loaded, Trace, law_fault

__all__ = ["Loaded", "Trace", "law_fault", "load"]
