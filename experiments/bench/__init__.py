"""Benchmarks: the exact command behind each published number."""
