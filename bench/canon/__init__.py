"""`kvgate bench canon`: requests that converge, and what that costs."""
