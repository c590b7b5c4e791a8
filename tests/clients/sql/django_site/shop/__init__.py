"""An app with every kind of field and relation that migrations have to make."""
