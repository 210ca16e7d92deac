"""What the model sees: the fold of the journal into a view, passes that change it, requests made of it. Pure."""
