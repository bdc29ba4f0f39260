"""A site's part: a worker that trains when it is told to."""
