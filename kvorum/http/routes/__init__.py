"""The routes: what each takes, does and answers, and the documents that are made of that."""
