"""The checks of opcheck, one module per subject."""
