"""Models that judge: Hugging Face language models, and exact tables."""
