"""Verification rules, their bound and their audit: pure maths, numpy only."""
