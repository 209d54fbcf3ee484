"""What opcheck draws: calls, their shapes, values and memory layouts."""
