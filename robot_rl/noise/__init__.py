"""Choice of the noise that a frozen policy denoises from."""
