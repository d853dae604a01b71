"""What is done to a float graph before it is quantized."""
