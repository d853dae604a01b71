"""What measuring models gives."""
