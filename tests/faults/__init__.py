"""The corpus that the checkers are tested with: what is wrong in known ways, and what is right."""
