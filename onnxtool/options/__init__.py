"""What each command takes: every option declared once. Imports nothing but the standard library."""
