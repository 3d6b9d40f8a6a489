"""What the stages hand to each other: frozen, plain, SI units in every name."""
