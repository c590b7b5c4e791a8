"""The transaction coordinator that runs in the client."""
