"""Two dumps or states, compared: presence, dtype, shape and bytes, down to the element."""
