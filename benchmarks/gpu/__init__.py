"""Measurements on a GPU beside the libraries that people use there."""
