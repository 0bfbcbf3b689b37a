"""The ground floor: episodes, features, statistics and the formats they are stored in.

Imports none of the other packages and starts without torch.
"""
