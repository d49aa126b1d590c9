"""What runs inside a user's training process. Imports nothing of ours but the words, as the user's folder may hold a
``runners/`` or ``solvers/`` of its own."""
