"""The draws of opcheck: calls, their shapes, values and memory layouts."""
