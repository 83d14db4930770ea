"""The decisions of a cycle as data, and the sentences made of them."""
