"""What each function of PostgreSQL does, by the name of its C function.

    function          how one is declared, and the words for what is special about it
    all_functions     all tables together, and those that ask the session
    f_text f_numbers f_times f_json f_arrays f_patterns f_enums f_advisory f_catalog
    f_information_schema
                      a table `FUNCTIONS` each, by what they are about
    formatting        to_char and its like
    regclass system_columns     names of relations; ctid, xmin and their like

Which function a call means is decided in `front/types/resolve.py`; aggregates and functions that
return sets are in `sqlproxy/analytic` (`aggregates`, `set_returning`).
"""
