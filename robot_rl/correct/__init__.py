"""Additive corrections of a frozen policy's actions."""
