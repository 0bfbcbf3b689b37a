"""What a robot is: its actions, its clock, its safety guard and the person who may take over.

NumPy only: a robot computer needs no torch to run any of it.
"""
