"""What a user's app.py gives a federation: the model, and how a site trains."""
