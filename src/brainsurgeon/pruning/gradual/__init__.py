"""Gradual pruning: weights go little by little while the others are trained."""
