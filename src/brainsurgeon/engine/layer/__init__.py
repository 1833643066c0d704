"""One layer's problem at the speed of matrix products: masks, least squares and swaps for all rows at once."""
