"""`send_arrow`: whole columns of records, encoded without a Python object per row."""
