"""Faults and right ones by kind: a kind is a generator, and each of its rows is one draw of it."""
