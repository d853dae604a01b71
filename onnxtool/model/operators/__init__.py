"""What each operator is and does, asked here by everybody: one row for each, and the rules that the rows name."""
