"""Values of observations and actions."""
