"""Steps of users' procedures in processes of their own, beside a node or a worker."""
