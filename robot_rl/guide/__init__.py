"""Guidance: hooks that steer the denoising towards what demonstrations look like, and their models."""
