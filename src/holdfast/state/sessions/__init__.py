"""Sessions: a conversation with its context, its tasks in front and in the background, and what steers them."""
