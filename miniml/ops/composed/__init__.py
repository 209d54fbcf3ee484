"""Functions that are made of primitives: no kernel and no gradient of their own, `composition`.

`elementwise` has those of one element each; the others are named by what they are for.
"""
