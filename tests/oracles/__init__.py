"""Comparisons with other people's libraries, where they are installed."""
