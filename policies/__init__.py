"""Policies: the interface every policy meets, the one denoising sampler, and the native flow policy."""
