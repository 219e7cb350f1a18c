"""What carries the messages of a round."""
