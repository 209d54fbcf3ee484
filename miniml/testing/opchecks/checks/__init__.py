"""What opcheck asks of a primitive, a module for each subject."""
