"""Programs as values: the graph, and how it is traced, printed, verified and rewritten."""
