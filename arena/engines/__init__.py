"""The ways a round is played: live against a verifier, or by replay of a trace."""
