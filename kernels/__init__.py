"""What happens to the bytes: compiled kernels over the shared table."""
