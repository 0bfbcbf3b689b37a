"""``robot-rl serve``: a policy with its noise, guidance and selection behind a websocket."""
