"""What the bytes are: layouts, sizes, named segments, who is attached."""
