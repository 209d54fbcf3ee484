"""gradcheck: checks a gradient against differences, and locates and diagnoses its faults."""
