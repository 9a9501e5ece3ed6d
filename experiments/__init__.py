"""Experiments: one small YAML each."""
