"""Choice among several chunks of a frozen policy."""
