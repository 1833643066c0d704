"""The paper: its networks, data sets and tables."""
