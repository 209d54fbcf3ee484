"""Small random programs that read and assign parameters, and the same with state by hand."""
