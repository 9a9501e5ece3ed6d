"""Packaged prompt sets."""
