"""Programs as values: the graph, how it is traced, printed, verified and rewritten."""
