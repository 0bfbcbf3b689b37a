"""What every learner shares: replay, the learner's contract and its process."""
