"""What tests of every primitive share, beside the rows of tests/opinfo."""
