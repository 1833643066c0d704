"""Training with the zeros kept."""
