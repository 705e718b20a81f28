"""The machinery of extensions: what they see, how they are loaded, and the one loop that asks their handlers."""
