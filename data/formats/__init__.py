"""File formats that episodes come from and go to, each behind the same small interface; see `registry`."""
