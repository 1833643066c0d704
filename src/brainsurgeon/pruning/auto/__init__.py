"""The best that data and time allow."""
