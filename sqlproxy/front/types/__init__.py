"""PostgreSQL's types: how their values are written and compared, which function or cast fits.

registry       PostgreSQL's own rows of types, casts, operators and functions (tables.json), and
               those that are not among them
resolve        which of them is meant
comparing value_texts    values: their order, and their texts
letters quoting          upper and lower case; names and texts in SQL
"""
