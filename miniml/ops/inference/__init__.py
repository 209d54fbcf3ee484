"""What the rules of operations are made of: shapes, axes, subscripts, equations, bodies."""
