"""Finding originals: what left the view comes back word for word. Pure."""
