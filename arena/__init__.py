"""Draft Arena: a tournament for speculative decoding."""
