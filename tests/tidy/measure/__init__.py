"""`make measure`: how large the product and its tests are, by room; what a reader passes through; what tests take."""
