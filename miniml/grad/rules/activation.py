"""Gradients of the activations."""
